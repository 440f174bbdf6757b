"""Finding input files and decoding them to text, with memory flat in the size of a file."""

import bz2
import codecs
import glob
import gzip
import logging
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from electra_ds.config.errors import InputError

OnDecodeError = Literal["fail", "replace", "skip"]
TextFormat = Literal["auto", "txt", "jsonl"]

SUPPORTED = ".txt and .jsonl, plain or with .gz, .bz2 or .xz"
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_FORMATS = {".txt": "txt", ".jsonl": "jsonl"}
_NOT_READ = (".zst", ".parquet")
_CHUNK_BYTES = 1 << 20
_TEXT_PER_COMPRESSED_BYTE = 4  # a rough guess, used for shares of a sample only

log = logging.getLogger(__name__)


@dataclass
class ReadCounts:
    """What reading has met so far; shared by all files of a run."""

    bytes_read: int = 0  # on disk, for progress bars
    decode_errors: int = 0  # undecodable byte sequences replaced or skipped


@dataclass(frozen=True)
class Source:
    """One input file, or standard input (``path`` None)."""

    path: Path | None
    format: str  # txt | jsonl

    @property
    def name(self) -> str:
        """How messages call it."""
        return "standard input" if self.path is None else str(self.path)

    @property
    def size(self) -> int:
        """Bytes on disk, 0 if unknown."""
        return 0 if self.path is None else self.path.stat().st_size

    @property
    def text_estimate(self) -> int:
        """Roughly how many bytes of text it holds."""
        compressed = self.path is not None and self.path.suffix in _OPENERS
        return self.size * (_TEXT_PER_COMPRESSED_BYTE if compressed else 1)


def _format_of(path: Path, wanted: TextFormat) -> str | None:
    """Return txt or jsonl for a file's name, or None if the name says neither; refuse what cannot be read."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if any(suffix in _NOT_READ for suffix in suffixes):
        raise InputError(f"{path}: {'/'.join(_NOT_READ)} files are not read; convert it to {SUPPORTED}")
    if wanted != "auto":
        return wanted
    if suffixes and suffixes[-1] in _OPENERS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1]) if suffixes else None


def find_inputs(inputs: Sequence[str], text_format: TextFormat = "auto") -> list[Source]:
    """Return the sources that paths, folders, globs and ``-`` stand for, each once, folders and globs sorted.

    Raises InputError for what does not exist or cannot be read; other files in a folder are left out with a
    note.
    """
    sources: dict[Path | None, Source] = {}
    for name in inputs:
        if name == "-":
            sources[None] = Source(None, "jsonl" if text_format == "jsonl" else "txt")
            continue
        if "://" in name:
            raise InputError(f"{name}: only local files are read ({SUPPORTED}, or - for standard input)")
        path = Path(name)
        if path.is_dir():
            found = sorted(child for child in path.rglob("*") if child.is_file())
            listed = [(child, kind) for child in found if (kind := _format_of(child, text_format))]
            if len(listed) < len(found):
                log.warning(
                    "%s: %d files that are not %s are left out", path, len(found) - len(listed), SUPPORTED
                )
        else:
            found = (
                [path] if path.exists() else [Path(hit) for hit in sorted(glob.glob(name, recursive=True))]
            )
            listed = []
            for child in (child for child in found if not child.is_dir()):
                kind = _format_of(child, text_format)
                if kind is None:
                    raise InputError(
                        f"{child}: not {SUPPORTED}; rename it, or say --format txt or --format jsonl"
                    )
                listed.append((child, kind))
        if not listed:
            raise InputError(f"{name}: no such file, folder or pattern with {SUPPORTED}")
        for child, kind in listed:
            sources.setdefault(child.resolve(), Source(child, kind))
    if not sources:
        raise InputError("no input given")
    return list(sources.values())


@contextmanager
def _opened(source: Source) -> Iterator[tuple[IO[bytes], IO[bytes] | None]]:
    """Open a source: (decompressed bytes, the file under it whose position is the progress)."""
    if source.path is None:
        yield sys.stdin.buffer, None
        return
    try:
        raw = source.path.open("rb")
    except OSError as error:
        raise InputError(f"{source.name}: cannot be read ({error.strerror})") from None
    with raw:
        opener = _OPENERS.get(source.path.suffix.lower())
        if opener is None:
            yield raw, raw
        else:
            with opener(raw, "rb") as unpacked:
                yield unpacked, raw


def read_text(source: Source, on_error: OnDecodeError, counts: ReadCounts) -> Iterator[str]:
    """Yield the text of a source in chunks of about a megabyte, decoded as UTF-8.

    Raises InputError naming file and byte offset (in the decompressed text) of the first bad byte if
    ``on_error`` is ``fail``; ``replace`` puts U+FFFD, ``skip`` leaves the bytes out, both counted.
    """
    pending = b""
    offset = 0  # of pending's first byte
    begun = counts.bytes_read
    with _opened(source) as (stream, raw):
        while True:
            try:
                chunk = stream.read(_CHUNK_BYTES)
            except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
                raise InputError(f"{source.name}: damaged or truncated file ({error})") from None
            data = pending + chunk
            text, used = _decode(data, not chunk, offset, source.name, on_error, counts)
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += used
            pending = data[used:]
            counts.bytes_read = begun + raw.tell() if raw else counts.bytes_read + len(chunk)
            if text:
                yield text
            if not chunk:
                return


def _decode(
    data: bytes, final: bool, offset: int, name: str, on_error: OnDecodeError, counts: ReadCounts
) -> tuple[str, int]:
    """Return (text, bytes used); an incomplete character at the end is left for later unless ``final``."""
    view = memoryview(data)
    used = 0
    parts: list[str] = []
    while True:
        try:
            text, length = codecs.utf_8_decode(view[used:], "strict", final)
        except UnicodeDecodeError as error:
            if on_error == "fail":
                at = used + error.start
                raise InputError(
                    f"{name}: not UTF-8 at byte offset {offset + at} (byte 0x{data[at]:02x});"
                    " convert the file, or say --on-decode-error replace or skip"
                ) from None
            parts.append(str(view[used : used + error.start], "utf-8"))
            if on_error == "replace":
                parts.append("\ufffd")
            counts.decode_errors += 1
            used += error.end
        else:
            parts.append(text)
            return "".join(parts), used + length
