"""``electra-ds pretrain``: train.py, under DeepSpeed's launcher where more than one rank is asked for."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from electra_ds.config.errors import InputError
from electra_ds.training.main import add_arguments, pretrain

_EPILOG = """example:
  electra-ds pretrain --nproc 2 --deepspeed_config ds_configs/cpu.json --recipe tiny_electra \\
      --data shards/ --output runs/tiny train.steps=200
"""


def register(subparsers: Any) -> None:
    """Add ``pretrain``."""
    parser = subparsers.add_parser(
        "pretrain",
        help="pretrain an encoder",
        description="Pretrain an ELECTRA-family encoder: train.py with --nproc ranks on this host.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="ranks on this host (default: 1)")
    parser.set_defaults(func=run_pretrain)


def run_pretrain(args: argparse.Namespace) -> int:
    """Train in this process, or become the launcher of several."""
    if args.nproc < 1:
        raise InputError(f"--nproc {args.nproc}: give the number of ranks, 1 or more")
    if args.nproc == 1:
        return pretrain(args)
    from electra_ds.training.distributed import free_port

    script = Path(__file__).resolve().parents[1] / "train.py"
    launcher = Path(sys.executable).with_name("deepspeed")
    words = sys.argv[sys.argv.index("pretrain") + 1 :]
    kept = [word for i, word in enumerate(words) if not _is_nproc(words, i)]
    command = [
        sys.executable,
        str(launcher),
        *("--num_accelerators", str(args.nproc), "--master_port", str(free_port())),
        str(script),
        *kept,
    ]
    sys.stdout.flush()
    os.execv(sys.executable, command)


def _is_nproc(words: list[str], index: int) -> bool:
    """Whether a word is ``--nproc`` or its value."""
    return words[index].startswith("--nproc") or (index > 0 and words[index - 1] == "--nproc")
