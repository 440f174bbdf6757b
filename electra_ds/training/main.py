"""From the command line to a trained run: read the settings, connect the ranks, build, train."""

import argparse
import contextlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_ds.config.derived import BatchPlan, solve_batch, total_steps
from electra_ds.config.ds_config import load_ds_config, resolve_ds_config
from electra_ds.config.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, InputError, RunFailure
from electra_ds.config.loading import load_config
from electra_ds.config.schema import Config

if TYPE_CHECKING:
    from electra_ds.training.distributed import Ranks
    from electra_ds.training.loop import Run

log = logging.getLogger("electra_ds")

_ASSUMED_VOCABULARY = 30_522  # of the published models; for a --dry-run without --data
_EPILOG = """examples:
  deepspeed electra_ds/train.py --deepspeed_config ds_configs/zero1_bf16.json --recipe base_hp_dist \\
      --data shards/ --eval-data shards/heldout --output runs/base_hp_dist
  python -m electra_ds.train --deepspeed_config ds_configs/cpu.json --recipe tiny_electra \\
      --data shards/ --output runs/tiny train.steps=200
  python -m electra_ds.train --deepspeed_config ds_configs/cpu.json --recipe base_hp_dist --dry-run

exit codes: 0 done, 1 the run failed, 2 the input is wrong, 75 stopped after saving (the same command resumes)
"""


def build_parser(program: str) -> argparse.ArgumentParser:
    """The options that ``train.py`` and ``electra-ds pretrain`` share."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Pretrain an ELECTRA-family encoder.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the training options to a parser."""
    parser.add_argument(
        "--recipe", required=True, metavar="NAME|FILE", help="a shipped recipe or a YAML file"
    )
    parser.add_argument("--deepspeed_config", "--deepspeed-config", required=True, type=Path, metavar="JSON")
    parser.add_argument("--data", type=Path, metavar="DIR", help="shards made by electra-ds prepare")
    parser.add_argument("--eval-data", type=Path, metavar="DIR", help="held-out shards, for eval/*")
    parser.add_argument("--output", type=Path, metavar="DIR", help="the run folder")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="YAML", help="settings over the recipe's"
    )
    parser.add_argument("--resume", default="auto", metavar="auto|never|CHECKPOINT")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be trained, and train nothing"
    )
    parser.add_argument("--local_rank", "--local-rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--deepspeed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings, as in train.steps=200")


def main(arguments: list[str] | None = None) -> int:
    """Run ``train.py``; returns the exit code. Every expected error is one line on stderr."""
    args = build_parser("train.py").parse_intermixed_args(arguments)
    return guarded(lambda: pretrain(args))


def guarded(work: Any) -> int:
    """Turn the errors that users are meant to see into one line and an exit code."""
    try:
        return work()
    except InputError as error:
        _complain(f"electra-ds: error: {error}")
        return EXIT_BAD_INPUT
    except RunFailure as error:
        _complain(f"electra-ds: failed: {error}")
        return EXIT_FAILED


def _complain(line: str) -> None:
    """Print a line once per job: the other ranks found the same, and end with rank 0."""
    rank = int(os.environ.get("RANK", "0"))
    if rank:
        time.sleep(5)
        line = f"[rank {rank}] {line}"
    print(line, file=sys.stderr, flush=True)


def pretrain(args: argparse.Namespace) -> int:
    """Train as the parsed arguments say; returns the exit code."""
    from electra_ds.training.distributed import connect, disconnect, set_rank_variables

    config = load_config(args.recipe, args.overrides, args.config)
    raw_ds_config = load_ds_config(args.deepspeed_config, config)
    ask_mpi = set_rank_variables()
    if args.dry_run:
        return _dry_run(args, config, raw_ds_config)
    for name in ("data", "output"):
        if getattr(args, name) is None:
            raise InputError(f"--{name} is missing: give --data SHARDS --output RUN, or --dry-run")
    if not ask_mpi:  # before anything slow; under MPI the number of ranks is known later
        solve_batch(config, int(os.environ["WORLD_SIZE"]))
    _check_data(args, config)
    ranks = connect(config.train.dist_timeout)
    try:
        plan = solve_batch(config, ranks.world_size)
        return _train(args, config, resolve_ds_config(raw_ds_config, config, plan), plan, ranks)
    finally:
        disconnect()


def _check_data(args: argparse.Namespace, config: Config) -> None:
    """Refuse wrong shards before a process group is made."""
    from electra_ds.data.manifest import load_manifest
    from electra_ds.data.stream import check_stream_settings

    check_stream_settings(config.data)
    vocab = load_manifest(args.data).vocab
    if args.eval_data is not None and load_manifest(args.eval_data).vocab.sha256 != vocab.sha256:
        raise InputError(f"--eval-data {args.eval_data}: made with another tokenizer than --data {args.data}")


def _dry_run(args: argparse.Namespace, config: Config, raw_ds_config: dict[str, Any]) -> int:
    from electra_ds.data.manifest import load_manifest
    from electra_ds.training.opening import dry_run_text, opening_lines

    plan = solve_batch(config, int(os.environ["WORLD_SIZE"]))
    vocab_size, source = _ASSUMED_VOCABULARY, f"{_ASSUMED_VOCABULARY} tokens (assumed; --data tells)"
    tokens = 0
    if args.data is not None:
        manifest = load_manifest(args.data)
        vocab_size, tokens = manifest.vocab.size, manifest.tokens
        source = f"{vocab_size} tokens ({args.data})"
    elif (config.train.duration or "").endswith("ep"):
        raise InputError(
            f"train.duration={config.train.duration}: give --data to know the length of an epoch"
        )
    steps = total_steps(config, tokens)
    ds_config = resolve_ds_config(raw_ds_config, config, plan)
    lines = opening_lines(config, ds_config, plan, steps, vocab_size, "rank")
    if int(os.environ["RANK"]) == 0:
        print(dry_run_text(config, lines, source))
    return EXIT_DONE


def _train(
    args: argparse.Namespace, config: Config, ds_config: dict[str, Any], plan: BatchPlan, ranks: "Ranks"
) -> int:
    from electra_ds.data.manifest import load_manifest
    from electra_ds.training.loop import train
    from electra_ds.training.run_folder import RunFolder
    from electra_ds.training.setup import already_done, build_run

    manifest = load_manifest(args.data)
    steps = total_steps(config, manifest.tokens)
    folder = RunFolder(args.output)
    start = ranks.first_decides(lambda: folder.open(config, manifest, args.resume))
    if start.step >= steps:
        return already_done(folder, start, steps, ranks)
    run = build_run(args, config, ds_config, plan, steps, ranks, folder, manifest, start)
    with _reporting_failure(run):
        return train(run)


@contextlib.contextmanager
def _reporting_failure(run: "Run") -> Iterator[None]:
    """Leave the reason of a failure in status.json, and the traceback of an unexpected one in log.txt."""
    try:
        yield
    except RunFailure as error:
        run.reporter.failed(run.progress, str(error))
        raise
    except Exception as error:
        run.reporter.failed(run.progress, f"{type(error).__name__}: {error}")
        log.debug("%s", traceback.format_exc())
        raise
    finally:
        run.loader.close()
