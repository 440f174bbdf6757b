"""The commands ``tokenizer`` and ``prepare``."""

import argparse
import datetime
import logging
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

_TOKENIZER_EXAMPLE = """examples:
  electra-ds tokenizer --input corpus/ --vocab-size 30522 --output tokenizer/
  electra-ds tokenizer --input news.jsonl.gz --text-field body --vocab-size 32000 \\
      --no-lowercase --output tokenizer/
"""
_PREPARE_EXAMPLE = """examples:
  electra-ds prepare --input corpus/ --tokenizer tokenizer/ --output shards/ --held-out 0.01
  zcat dump.gz | electra-ds prepare --input - --tokenizer vocab.txt --output shards/
  electra-ds prepare --check shards/
"""
_SIZE_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def register(subparsers: Any) -> None:
    """Add the room's commands to the command line."""
    tokenizer = _add(subparsers, "tokenizer", "Train a WordPiece tokenizer on text.", _TOKENIZER_EXAMPLE)
    _add_reading(tokenizer, required=True)
    tokenizer.add_argument(
        "--vocab-size", type=int, required=True, metavar="N", help="tokens, special ones included"
    )
    tokenizer.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder for the tokenizer"
    )
    switch = argparse.BooleanOptionalAction
    tokenizer.add_argument(
        "--lowercase", action=switch, default=True, help="lower-case all text (default: yes)"
    )
    tokenizer.add_argument(
        "--strip-accents", action=switch, default=None, help="remove accents (default: as --lowercase)"
    )
    tokenizer.add_argument(
        "--cjk", action=switch, default=True, help="each CJK ideograph is a word (default: yes)"
    )
    tokenizer.add_argument(
        "--unicode-form",
        choices=("none", "nfc", "nfkc"),
        default="nfc",
        help="normal form (default: %(default)s)",
    )
    tokenizer.add_argument(
        "--sample-bytes",
        type=parse_size,
        default=1 << 28,
        metavar="N",
        help="train on at most this much text, spread over the files (default: 256M)",
    )
    tokenizer.add_argument(
        "--allow-smaller", action="store_true", help="take fewer tokens where the text gives no more"
    )
    tokenizer.set_defaults(func=run_tokenizer)

    prepare = _add(subparsers, "prepare", "Tokenize text into shards that training reads.", _PREPARE_EXAMPLE)
    prepare.add_argument(
        "--check", type=Path, metavar="DIR", help="verify every checksum of a shard folder; nothing else"
    )
    _add_reading(prepare, required=False)
    prepare.add_argument("--tokenizer", type=Path, metavar="DIR", help="tokenizer folder, or a vocab.txt")
    prepare.add_argument("--output", type=Path, metavar="DIR", help="folder for the shards")
    prepare.add_argument(
        "--sentences",
        choices=("newline", "rule", "none"),
        default="rule",
        help="where sentences end: at line ends, there and by punctuation, or nowhere (default: %(default)s)",
    )
    prepare.add_argument(
        "--document-separator",
        choices=("blank", "line", "none"),
        default="blank",
        help="what separates documents in .txt: a blank line, every line end, nothing (default: %(default)s)",
    )
    prepare.add_argument(
        "--held-out",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of documents put into OUTPUT/heldout",
    )
    prepare.add_argument(
        "--shard-size",
        type=parse_size,
        default=64 << 20,
        metavar="BYTES",
        help="size of a shard (default: 64M)",
    )
    prepare.add_argument(
        "--record-tokens",
        type=int,
        default=16_384,
        metavar="N",
        help="most tokens in a record (default: %(default)s)",
    )
    prepare.add_argument(
        "--min-tokens",
        type=int,
        default=1,
        metavar="N",
        help="leave out shorter documents (default: %(default)s)",
    )
    for name, what in (
        ("source", "where the text comes from"),
        ("licence", "its licence"),
        ("date", "its date (default: today)"),
        ("filters", "how it was filtered"),
    ):
        names = [f"--{name}", "--license"] if name == "licence" else [f"--{name}"]
        prepare.add_argument(
            *names, dest=name, default="", metavar="TEXT", help=f"{what}, kept in the manifest"
        )
    prepare.set_defaults(func=run_prepare)


def _add(subparsers: Any, name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return subparsers.add_parser(
        name,
        help=description,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_reading(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument(
        "--input",
        nargs="+",
        required=required,
        metavar="PATH",
        help="files, folders, patterns, or - : .txt and .jsonl, plain or with .gz, .bz2, .xz",
    )
    parser.add_argument(
        "--format",
        choices=("auto", "txt", "jsonl"),
        default="auto",
        help="of the input (default: by its name)",
    )
    parser.add_argument(
        "--text-field", default="text", metavar="NAME", help="field of a .jsonl record (default: %(default)s)"
    )
    parser.add_argument(
        "--on-decode-error",
        choices=("fail", "replace", "skip"),
        default="fail",
        help="bytes that are not UTF-8: stop, put U+FFFD, or leave them out; counted (default: %(default)s)",
    )


def parse_size(text: str) -> int:
    """Return bytes for ``1000``, ``64M`` or ``2G`` (powers of 1024)."""
    unit = _SIZE_UNITS.get(text[-1:].lower(), 1)
    number = text[:-1] if unit > 1 else text
    try:
        return int(float(number) * unit) if unit > 1 else int(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes, or 64M, or 2G") from None


def _log_to_stderr() -> None:
    logger = logging.getLogger("electra_ds.data")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def run_tokenizer(args: argparse.Namespace) -> int:
    """Train a tokenizer and save it; returns the exit code."""
    from electra_ds.config.errors import InputError
    from electra_ds.data.corpus import CorpusOptions
    from electra_ds.data.inputs import find_inputs
    from electra_ds.data.tokenizer import WordPieceSettings, save_files, tokenizer_files
    from electra_ds.data.tokenizer_training import train_tokenizer

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    _log_to_stderr()
    if args.output.exists() and (not args.output.is_dir() or any(args.output.iterdir())):
        raise InputError(f"{args.output}: exists already and is not an empty folder; choose another --output")
    sources = find_inputs(args.input, args.format)
    options = CorpusOptions(text_field=args.text_field, on_decode_error=args.on_decode_error)
    settings = WordPieceSettings(args.lowercase, args.strip_accents, args.cjk, args.unicode_form)
    tokenizer = train_tokenizer(
        sources, options, settings, args.vocab_size, args.sample_bytes, args.allow_smaller
    )
    save_files(tokenizer_files(tokenizer, settings), args.output)
    print(f"{args.output}: {tokenizer.get_vocab_size()} tokens")
    inputs = shlex.join(args.input)
    print(
        f"next: electra-ds prepare --input {inputs} --tokenizer {shlex.quote(str(args.output))}"
        " --output shards/"
    )
    return 0


def run_prepare(args: argparse.Namespace) -> int:
    """Write shards, or check them; returns the exit code."""
    from electra_ds.config.errors import InputError

    if args.check is not None:
        return _check(args.check)
    missing = [f"--{name}" for name in ("input", "tokenizer", "output") if getattr(args, name) is None]
    if missing:
        raise InputError(f"prepare needs {' and '.join(missing)} (or --check DIR)")
    from electra_ds.data.corpus import CorpusOptions
    from electra_ds.data.encoding import load_encoder
    from electra_ds.data.inputs import find_inputs
    from electra_ds.data.prepare import PrepareOptions, prepare

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    _log_to_stderr()
    sources = find_inputs(args.input, args.format)
    encoder = load_encoder(args.tokenizer)
    corpus = CorpusOptions(args.text_field, args.document_separator, args.sentences, args.on_decode_error)
    options = PrepareOptions(
        corpus=corpus,
        held_out=args.held_out,
        shard_bytes=args.shard_size,
        record_tokens=args.record_tokens,
        min_tokens=args.min_tokens,
    )
    provenance = {
        "source": args.source,
        "licence": args.licence,
        "date": args.date or _today(),
        "filters": args.filters,
        "command": shlex.join(["electra-ds", *sys.argv[1:]]),
    }
    with _Bar(sum(source.size for source in sources)) as bar:
        manifests = prepare(sources, encoder, args.output, options, provenance, bar.show)
    for manifest in manifests:
        print(_summary(manifest))
    _print_next(args.output)
    return 0


def _print_next(folder: Path) -> None:
    from electra_ds.data.manifest import HELDOUT_FOLDER

    held_out = folder / HELDOUT_FOLDER
    evaluation = f" --eval-data {shlex.quote(str(held_out))}" if held_out.is_dir() else ""
    print(
        "next: deepspeed electra_ds/train.py --deepspeed_config ds_configs/cpu.json --recipe tiny_electra"
        f" --data {shlex.quote(str(folder))}{evaluation} --output runs/first"
    )


def _today() -> str:
    """Today's date, or that of SOURCE_DATE_EPOCH, so that a build can be repeated to the byte."""
    moment = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return datetime.datetime.fromtimestamp(moment, tz=datetime.timezone.utc).date().isoformat()


def _summary(manifest: Any) -> str:
    counts = manifest.counts
    parts = [
        f"{counts['documents']:,} documents",
        f"{counts['tokens']:,} tokens",
        f"{len(manifest.shards)} shards",
    ]
    parts += [f"{counts[name]:,} {name}" for name in ("empty", "short", "decode_errors") if counts.get(name)]
    parts.append(f"{100 * counts['unknown'] / counts['tokens']:.2f} % [UNK]")
    return f"{manifest.folder}: " + ", ".join(parts)


def _check(folder: Path) -> int:
    from electra_ds.data.manifest import HELDOUT_FOLDER, load_manifest

    folders = [folder, *(p for p in [folder / HELDOUT_FOLDER] if p.is_dir())]
    for each in folders:
        print(_summary(load_manifest(each, check="checksums")))
    print("every checksum and count is right")
    _print_next(folder)
    return 0


class _Bar:
    """A progress bar over the bytes of the input, with documents and tokens per second; silent without a
    terminal.
    """

    def __init__(self, total: int) -> None:
        self._total = total

    def __enter__(self) -> "_Bar":
        from tqdm import tqdm

        self._begun = time.monotonic()
        self._bar = tqdm(total=self._total or None, unit="B", unit_scale=True, disable=None, desc="prepare")
        return self

    def show(self, read: Any, documents: int, tokens: int) -> None:
        """Move the bar."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        self._bar.update(read.bytes_read - self._bar.n)
        self._bar.set_postfix_str(f"{documents:,} documents, {tokens / seconds:,.0f} tokens/s", refresh=False)

    def __exit__(self, *exception: object) -> None:
        self._bar.close()
