"""Shard files: WebDataset tar archives of records, written whole or not at all, read by record.

A shard gets its final name only when it is complete and on disk. The byte length and CRC-32 of every
record stand in the manifest, so a record is one read at a known offset, checked as it is read.
"""

import contextlib
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from electra_ds.data.records import END_OF_ARCHIVE, Block, RecordError, decode_record, encode_record

TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True)
class Shard:
    """A shard's entry in the manifest."""

    name: str  # file name in the manifest's folder
    bytes: int
    sha256: str
    tokens: int
    documents: int
    blocks: tuple[int, ...]  # tokens of each record
    block_bytes: tuple[int, ...]  # bytes of each record in the tar file, headers and padding included
    block_crc32: tuple[int, ...]  # CRC-32 of those bytes

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.blocks)


class ShardWriter:
    """Write records into ``shard-000000.tar``, ``shard-000001.tar`` ... of one folder.

    A shard is closed when it reaches ``shard_bytes``. Record keys are ``prefix`` and a running number, so
    they are unique over the set.
    """

    def __init__(self, folder: Path, shard_bytes: int, prefix: str = "") -> None:
        self.folder = folder
        self.shard_bytes = shard_bytes
        self.prefix = prefix
        self.shards: list[Shard] = []
        self._records = 0
        self._begin()

    def _begin(self) -> None:
        self._file: IO[bytes] | None = None
        self._bytes = self._tokens = self._documents = 0
        self._blocks: list[int] = []
        self._block_bytes: list[int] = []
        self._block_crc32: list[int] = []
        self._sha256 = hashlib.sha256()

    @property
    def _name(self) -> str:
        return f"shard-{len(self.shards):06d}.tar"

    @property
    def _temporary(self) -> Path:
        return self.folder / (self._name + TEMPORARY_SUFFIX)

    def write(self, block: Block, documents: int) -> None:
        """Append a record; ``documents`` counts those that begin in it (a continued one counts once)."""
        if self._file is None:
            self._file = self._temporary.open("wb")
        data = encode_record(f"{self.prefix}{self._records:09d}", block)
        self._append(self._file, data)
        self._records += 1
        self._blocks.append(len(block.tokens))
        self._block_bytes.append(len(data))
        self._block_crc32.append(zlib.crc32(data))
        self._tokens += len(block.tokens)
        self._documents += documents
        if self._bytes >= self.shard_bytes:
            self.finish_shard()

    def _append(self, file: IO[bytes], data: bytes) -> None:
        file.write(data)
        self._sha256.update(data)
        self._bytes += len(data)

    def finish_shard(self) -> None:
        """Close the open shard, if any, and give it its final name."""
        if self._file is None:
            return
        self._append(self._file, END_OF_ARCHIVE)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.folder / self._name)
        shard = Shard(
            name=self._name,
            bytes=self._bytes,
            sha256=self._sha256.hexdigest(),
            tokens=self._tokens,
            documents=self._documents,
            blocks=tuple(self._blocks),
            block_bytes=tuple(self._block_bytes),
            block_crc32=tuple(self._block_crc32),
        )
        self.shards.append(shard)
        self._begin()

    def abandon(self) -> None:
        """Close and remove the unfinished shard."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk, which is already being reported
                self._file.close()
            self._temporary.unlink(missing_ok=True)
            self._begin()


def read_block(path: Path, shard: Shard, index: int, offset: int) -> Block:
    """Read record ``index`` of a shard at byte ``offset``; raise RecordError if it is not as written."""
    length = shard.block_bytes[index]
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != shard.bytes:
                raise RecordError(f"the file no longer has the {shard.bytes} bytes that the manifest states")
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        raise RecordError(f"cannot be read ({error.strerror})") from None
    if len(data) != length or zlib.crc32(data) != shard.block_crc32[index]:
        raise RecordError(f"record {index} is damaged (its CRC-32 differs from the manifest's)")
    _, block = decode_record(data)
    if len(block.tokens) != shard.blocks[index]:
        raise RecordError(f"record {index} holds {len(block.tokens)} tokens, not {shard.blocks[index]}")
    return block


def verify_shard(path: Path, shard: Shard) -> None:
    """Read a whole shard and check its checksum and every record; raise RecordError on the first fault."""
    digest = hashlib.sha256()
    seen: set[str] = set()
    try:
        with path.open("rb") as file:
            for index, length in enumerate(shard.block_bytes):
                data = file.read(length)
                digest.update(data)
                if zlib.crc32(data) != shard.block_crc32[index]:
                    raise RecordError(f"record {index} is damaged (its CRC-32 differs from the manifest's)")
                key, block = decode_record(data)
                if key in seen:
                    raise RecordError(f"the key {key!r} occurs twice")
                seen.add(key)
                if len(block.tokens) != shard.blocks[index]:
                    raise RecordError(f"record {key!r} does not hold the {shard.blocks[index]} tokens stated")
            rest = file.read(len(END_OF_ARCHIVE) + 1)
            digest.update(rest)
    except OSError as error:
        raise RecordError(f"cannot be read ({error.strerror})") from None
    if rest != END_OF_ARCHIVE:
        raise RecordError("does not end where its last record ends")
    if digest.hexdigest() != shard.sha256:
        raise RecordError("its sha256 differs from the manifest's")
