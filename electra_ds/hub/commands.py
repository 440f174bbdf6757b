"""The commands ``export`` and ``detect``."""

import argparse
import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from electra_ds.config.errors import EXIT_DONE, InputError

_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


def register(subparsers: Any) -> None:
    """Add the commands of this room to the console script."""
    _register_export(subparsers)
    _register_detect(subparsers)


def _register_export(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "export",
        help="turn a run into Hugging Face folders",
        description="Write the discriminator and the generator of a run (its newest whole checkpoint) as"
        " folders that transformers loads strictly: weights, config.json, tokenizer, model card. With"
        " relative positions each folder carries its own modelling file. One CPU process suffices.",
        epilog="example:\n  electra-ds export runs/tiny --output out/\n"
        "  electra-ds export runs/tiny/checkpoints/step-00001000 --output out-1000/ --license apache-2.0",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN_OR_CKPT", type=Path, help="run folder, or one of its checkpoints")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--license",
        default="unknown",
        metavar="ID",
        help="licence of the weights as the hub names it, e.g. apache-2.0 (default: unknown)",
    )
    parser.set_defaults(func=_export)


def _register_detect(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "detect",
        help="show which words a discriminator distrusts",
        description="Print, for every word of every sentence, the probability that it was replaced. The model"
        " folder is only read: no code in it is run.",
        epilog='example:\n  electra-ds detect --model out/discriminator "the chef ate the meal"\n'
        "  electra-ds detect --model out/discriminator --input sentences.txt --json\n"
        '  echo "the chef ate the meal" | electra-ds detect --model out/discriminator',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, type=Path, metavar="DIR", help="folder of a discriminator")
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="a sentence to look at")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="text with a sentence a line; - for stdin, which is also read where there is no sentence at all",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per sentence")
    parser.set_defaults(func=_detect)


def _export(args: argparse.Namespace) -> int:
    if not _LICENSE.fullmatch(args.license):
        raise InputError(f"--license: {args.license!r} is no licence identifier; give one such as apache-2.0")
    from electra_ds.hub.configs import MODELLING_FILE
    from electra_ds.hub.export import export

    folders = export(args.run, args.output, license=args.license)
    for folder in folders:
        print(f"wrote {folder}")
    if (folders[0] / MODELLING_FILE).is_file():
        print(
            "note: transformers has no ELECTRA with relative positions, so each folder carries its own"
            f" {MODELLING_FILE}; load it with trust_remote_code=True"
        )
    if folders[0].name == "discriminator":
        print(f'next: electra-ds detect --model {shlex.quote(str(folders[0]))} "the chef ate the meal"')
    else:
        print(f"next: try it as {folders[0] / 'README.md'} shows")
    return EXIT_DONE


def _detect(args: argparse.Namespace) -> int:
    lines = _given_lines(args.sentences, args.input)
    from electra_ds.hub.detect import Detector
    from electra_ds.hub.show import render, wants_colour

    detector = Detector(args.model)
    colour = wants_colour(sys.stdout)
    count = 0
    for count, found in enumerate(detector.detect(lines), start=1):
        if args.json:
            print(json.dumps(found.as_record(), ensure_ascii=False), flush=True)
        else:
            print(render(found, colour), flush=True)
        if found.truncated:
            print(
                f"electra-ds: note: sentence {count} is longer than the {detector.model.max_length} tokens"
                " that the model takes; the rest was left out",
                file=sys.stderr,
            )
    if count == 0:
        raise InputError("no sentence was found; give one as an argument, or lines of text by --input")
    model = shlex.quote(str(args.model))
    following = f"next: electra-ds detect --model {model} --input sentences.txt --json"
    print(following, file=sys.stderr if args.json else sys.stdout)
    return EXIT_DONE


def _given_lines(sentences: list[str], source: str | None) -> Iterator[str]:
    """The sentences given, then the lines of ``source``; blank ones are skipped.

    Raises InputError at once where there is nothing to read from.
    """
    if source is None and not sentences:
        if sys.stdin.isatty():
            raise InputError("no sentence was given; write one as an argument, or give --input FILE")
        source = "-"
    if source not in (None, "-") and not Path(source).is_file():
        raise InputError(f"--input {source}: no such file; give a text file, or - for stdin")
    lines = itertools.chain(sentences, [] if source is None else _lines_of(source))
    return (line for line in lines if line.strip())


def _lines_of(source: str) -> Iterator[str]:
    name = "stdin" if source == "-" else source
    with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as stream:
        offset = 0
        for raw in stream:
            try:
                yield raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{name}: byte {offset + error.start} is not UTF-8 ({error.reason}); convert the text"
                ) from None
            offset += len(raw)
