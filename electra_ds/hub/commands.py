"""The commands ``export`` and ``detect``."""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
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
        description="Write the discriminator and the generator of a run (its newest whole checkpoint) as folders"
        " that transformers loads strictly: weights, config.json, tokenizer, model card. With relative"
        " positions each folder carries its own modelling file. One CPU process, whatever made the checkpoint.",
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
        "  electra-ds detect --model out/discriminator --json - < sentences.txt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", required=True, type=Path, metavar="DIR", help="folder of a discriminator"
    )
    parser.add_argument("sentences", nargs="+", metavar="SENTENCE", help="a sentence, or - for one a line on stdin")
    parser.add_argument("--json", action="store_true", help="one JSON object per sentence")
    parser.set_defaults(func=_detect)


def _export(args: argparse.Namespace) -> int:
    if not _LICENSE.fullmatch(args.license):
        raise InputError(f"--license: {args.license!r} is no licence identifier; give one such as apache-2.0")
    from electra_ds.hub.export import export

    folders = export(args.run, args.output, license=args.license)
    for folder in folders:
        print(f"wrote {folder}")
    if folders[0].name == "discriminator":
        print(f'next: electra-ds detect --model {folders[0]} "the chef ate the meal"')
    else:
        print(f"next: try it as {folders[0] / 'README.md'} shows")
    return EXIT_DONE


def _detect(args: argparse.Namespace) -> int:
    from electra_ds.hub.detect import Detector
    from electra_ds.hub.show import render, wants_colour

    detector = Detector(args.model)
    colour = wants_colour(sys.stdout)
    count = 0
    for count, found in enumerate(detector.detect(_sentences(args.sentences)), start=1):
        if args.json:
            print(json.dumps(found.as_record(), ensure_ascii=False), flush=True)
        else:
            print(render(found, colour), flush=True)
        if found.truncated:
            print(
                f"electra-ds: note: sentence {count} is longer than the {detector.model.max_length} tokens that"
                " the model takes; the rest was left out",
                file=sys.stderr,
            )
    if count == 0:
        raise InputError("no sentence was given; write one as an argument, or lines of text on stdin after -")
    if not args.json:
        print(f"next: electra-ds detect --model {args.model} --json - < sentences.txt")
    return EXIT_DONE


def _sentences(arguments: Iterable[str]) -> Iterator[str]:
    """The sentences as given; ``-`` stands for the lines of stdin. Blank ones are skipped."""
    for argument in arguments:
        for line in _stdin_lines() if argument == "-" else [argument]:
            if line.strip():
                yield line


def _stdin_lines() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(f"stdin: line {number} is not UTF-8 ({error.reason}); convert the text") from None
