"""The ``electra-ds`` command: one subcommand per job, each registered by the room that does it."""

import argparse
import importlib
import sys

from electra_ds import __version__
from electra_ds.training.main import guarded

_ROOMS = ("config", "data", "training", "hub")


def build_parser() -> argparse.ArgumentParser:
    """The parser with every room's subcommands."""
    parser = argparse.ArgumentParser(
        prog="electra-ds",
        description="From raw text to a pretrained ELECTRA-family encoder.",
        epilog="example: electra-ds recipes ls\neach command explains itself: electra-ds prepare --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"electra-ds {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for room in _ROOMS:
        importlib.import_module(f"electra_ds.{room}.commands").register(subparsers)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns the exit code."""
    parser = build_parser()
    args, rest = parser.parse_known_args(arguments)
    if rest and hasattr(args, "overrides") and all("=" in word and not word.startswith("-") for word in rest):
        args.overrides += rest  # key=value between options; argparse takes only the first group
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return guarded(lambda: args.func(args))


if __name__ == "__main__":
    sys.exit(main())
