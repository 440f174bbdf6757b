"""The quickstart, stage by stage: corpus, tokenizer, shards, training, export, results."""

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from electra_ds.config.errors import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_STOPPED,
    InputError,
    RunFailure,
)
from electra_ds.quickstart.corpus import (
    HELDOUT_NAME,
    TRAIN_NAME,
    CorpusReport,
    build_from_files,
    build_from_installation,
    read_report,
)
from electra_ds.quickstart.results import LEAST_AUC, Results, read_results
from electra_ds.quickstart.stages import Workplace, program, run_command
from electra_ds.quickstart.training import (
    FULL_PRECISION,
    HALF_PRECISION,
    RECIPE,
    choose_ds_config,
    plan_launch,
    train_until,
)

VOCAB_SIZE = 8192
STEPS = {HALF_PRECISION: 2600, FULL_PRECISION: 2200}  # 6 and 8 minutes on two cores
_STEPS_HELP = f"{STEPS[HALF_PRECISION]} in bf16, {STEPS[FULL_PRECISION]} in fp32"
_FILTERS = "prose only, near-duplicates left out (electra_ds.quickstart)"


def build_parser() -> argparse.ArgumentParser:
    """The options of ``python -m electra_ds.quickstart``."""
    parser = argparse.ArgumentParser(
        prog="python -m electra_ds.quickstart",
        description="Pretrain a tiny ELECTRA on text that this Python installation carries, or on yours;"
        " stop and resume it on the way, export it and try it. Run again, it goes on where it was.",
        epilog="examples:\n  python -m electra_ds.quickstart\n"
        "  python -m electra_ds.quickstart --input corpus/ --work try-corpus",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--input", nargs="+", default=[], metavar="PATH", help="your own text: .txt or .jsonl files"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("quickstart"), metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--only-data", type=Path, metavar="DIR", help="corpus, tokenizer and shards, there; no more"
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help=f"updates (default: as this machine computes, {_STEPS_HELP})"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the quickstart; returns the exit code. Every expected error is one line on stderr."""
    args = build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C
    try:
        if args.only_data is not None:
            return _only_data(args.input, args.only_data)
        return quickstart(args.input, args.work, args.steps)
    except InputError as error:
        print(f"quickstart: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except RunFailure as error:
        print(f"quickstart: failed: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("\nquickstart: stopped; the same command goes on from here", file=sys.stderr)
        return EXIT_STOPPED


def _only_data(inputs: Sequence[str], folder: Path) -> int:
    _prepare_data(Workplace(folder, inputs), inputs)
    shards = shlex.quote(str(folder / "shards" / "train"))
    held_out = shlex.quote(str(folder / "shards" / "heldout"))
    print(
        f"next: {program('deepspeed')} electra_ds/train.py --deepspeed_config ds_configs/cpu.json"
        f" --recipe {RECIPE} --data {shards} --eval-data {held_out} --output runs/first"
    )
    return EXIT_DONE


def _prepare_data(place: Workplace, inputs: Sequence[str]) -> None:
    _corpus(place, inputs)
    _tokenizer(place)
    _shards(place)


def build_corpus(inputs: Sequence[str], folder: Path) -> CorpusReport:
    """Make the corpus out of the user's files, or of the installation if there are none."""
    return build_from_files(inputs, folder) if inputs else build_from_installation(folder)


def quickstart(inputs: Sequence[str], work: Path, steps: int | None) -> int:
    """Run all stages that are not done; returns the exit code."""
    if steps is not None and steps < 2:
        raise InputError(f"--steps {steps}: must be at least 2, to stop in the middle")
    begun = time.monotonic()
    place = Workplace(work, inputs)
    if place.noted("ds_config") is None:
        place.note("ds_config", choose_ds_config())
    steps = steps or STEPS[place.noted("ds_config")]
    if place.is_done("export") and place.noted("steps") == steps:
        print(f"{work}: this quickstart was finished before; here is what came of it")
    _prepare_data(place, inputs)
    _train(place, steps)
    _export(place)
    results = read_results(work / "run")
    _show(place, results)
    print(f"\nthis start took {(time.monotonic() - begun) / 60:.1f} minutes")
    print(f"heldout_auc={results.heldout_auc:.3f}", flush=True)
    if results.heldout_auc < LEAST_AUC:
        raise RunFailure(
            f"held-out AUC {results.heldout_auc:.3f} is below {LEAST_AUC:.2f}: it has not learned enough;"
            " give more --steps, or more text"
        )
    return EXIT_DONE


def _title(number: int, text: str) -> None:
    print(f"\n[{number}/6] {text}", flush=True)


def _corpus(place: Workplace, inputs: Sequence[str]) -> None:
    folder = place.folder / "corpus"
    _title(
        1, "Text: " + (", ".join(inputs) or "docstrings, comments and manuals of this Python installation")
    )
    if not place.is_done("corpus"):
        place.begin("corpus")
        build_corpus(inputs, folder)
        place.finish("corpus", f"corpus/{TRAIN_NAME}", f"corpus/{HELDOUT_NAME}")
    print(read_report(folder).sentence())


def _tokenizer(place: Workplace) -> None:
    _title(2, f"Tokenizer: WordPiece, {VOCAB_SIZE} pieces")
    if place.is_done("tokenizer"):
        print("done before")
        return
    place.begin("tokenizer")
    train, output = place.folder / "corpus" / TRAIN_NAME, place.folder / "tokenizer"
    size = str(VOCAB_SIZE)
    run_command(["tokenizer", "--input", str(train), "--vocab-size", size, "--output", str(output)])
    place.finish("tokenizer", "tokenizer")


def _shards(place: Workplace) -> None:
    _title(3, "Shards: tokenized text in WebDataset form, for training and held out")
    for name, text in (("train", TRAIN_NAME), ("heldout", HELDOUT_NAME)):
        if place.is_done(f"shards-{name}"):
            print(f"{name}: done before")
            continue
        output = place.folder / "shards" / name
        place.begin(f"shards/{name}")
        output.parent.mkdir(exist_ok=True)
        text_file, tokenizer = place.folder / "corpus" / text, place.folder / "tokenizer"
        command = [
            "prepare",
            "--input",
            str(text_file),
            "--tokenizer",
            str(tokenizer),
            "--output",
            str(output),
        ]
        run_command([*command, "--filters", _FILTERS])
        place.finish(f"shards-{name}", f"shards/{name}")


def _train(place: Workplace, steps: int) -> None:
    """Train to half, be stopped by a signal, resume, train to the end."""
    _title(4, f"Pretraining: {steps} steps, stopped half-way by a signal and resumed")
    run = place.folder / "run"
    if place.is_done("training") and place.noted("steps") == steps:
        print(f"done before: {run}")
        return
    place.forget("training", "export")
    shards = place.folder / "shards"
    launch = plan_launch(shards / "train", shards / "heldout", run, steps, place.noted("ds_config"))
    if place.noted("stopped_at") is None:
        print(f"$ {launch.shown()}", flush=True)
        status = train_until(launch, stop_step=steps // 2)
        if status["state"] == "stopped":
            print(
                f"-- stopped after saving step {status['step']} (exit code {status['exit_code']})", flush=True
            )
        place.note("stopped_at", status["step"])
    print(
        f"-- resumed by the same command, after step {place.noted('stopped_at')} or later\n$ {launch.shown()}"
    )
    sys.stdout.flush()
    train_until(launch, stop_step=None)
    place.note("steps", steps)
    place.finish("training", "run")


def _export(place: Workplace) -> None:
    _title(5, "Export: discriminator and generator as Hugging Face folders")
    if place.is_done("export"):
        print("done before")
        return
    place.begin("export")
    run_command(["export", str(place.folder / "run"), "--output", str(place.folder / "export")])
    place.finish("export", "export/discriminator", "export/generator")


def _show(place: Workplace, results: Results) -> None:
    from electra_ds.hub.detect import Detector
    from electra_ds.quickstart.showcase import frequent_words, plan_changes, report, show_all

    _title(6, "Results")
    corpus, model = place.folder / "corpus", place.folder / "export" / "discriminator"
    changes = plan_changes(corpus / HELDOUT_NAME, frequent_words(corpus / TRAIN_NAME))
    shown = report(show_all(Detector(model), changes))
    lines = [*results.lines(), "", *shown, "", "next:"]
    print("\n".join([*lines, *_next_commands(place.folder)]))


def _next_commands(work: Path) -> list[str]:
    folder = str(work)
    electra_ds = program("electra-ds")
    model = shlex.quote(f"{folder}/export/discriminator")
    commands = [
        f"{program('tensorboard')} --logdir {shlex.quote(f'{folder}/run/tb')}",
        f'{electra_ds} detect --model {model} "The function returns the weather of the list."',
        f"{electra_ds} export {shlex.quote(f'{folder}/run')} --output out/",
        f"{electra_ds} recipes ls",
    ]
    if Path("slurm/base_hp_dist.sh").is_file():
        commands.append("sbatch slurm/base_hp_dist.sh")
    return [f"  {command}" for command in commands]
