"""From text to shards: the writing side of the data path.

Documents are tokenized in batches (on all cores, by the tokenizer's threads), gathered into records, and
written as shards. A folder being written carries a marker; the manifest comes last, and then the marker goes.
What an interrupted run left behind is therefore known for what it is, and is built again.
"""

import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.data.corpus import CorpusOptions, Part, read_documents
from electra_ds.data.encoding import TextEncoder
from electra_ds.data.inputs import ReadCounts, Source
from electra_ds.data.manifest import (
    HELDOUT_FOLDER,
    MANIFEST_NAME,
    TOKENIZER_FOLDER,
    Manifest,
    load_manifest,
    write_manifest,
)
from electra_ds.data.packing import RecordBuilder
from electra_ds.data.shards import ShardWriter
from electra_ds.data.tokenizer import save_files

MARKER = ".prepare-unfinished"
_BATCH_CHARS = 1 << 20  # text tokenized at once
_HELDOUT_KEY = b"electra_ds held-out documents"
_HELDOUT_CHARS = 1 << 16  # of a document decide where it goes
_OWN_FILE = re.compile(r"shard-\d{6}\.tar(\.tmp)?|manifest\.json\.tmp|\.prepare-unfinished")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareOptions:
    """Settings of ``prepare``; those that shape the shards are stored in the manifest."""

    corpus: CorpusOptions = field(default_factory=CorpusOptions)
    held_out: float = 0.0  # share of documents that goes to OUTPUT/heldout
    shard_bytes: int = 64 << 20
    record_tokens: int = 16_384
    min_tokens: int = 1  # shorter documents are left out

    def check(self) -> None:
        """Raise InputError for impossible values."""
        if not 0.0 <= self.held_out < 1.0:
            raise InputError(f"--held-out {self.held_out}: must be at least 0 and less than 1")
        if self.shard_bytes < 1:
            raise InputError(f"--shard-size {self.shard_bytes}: must be at least 1 byte")
        if self.record_tokens < 16:
            raise InputError(f"--record-tokens {self.record_tokens}: must be at least 16")
        if not 0 <= self.min_tokens <= self.record_tokens:
            raise InputError(f"--min-tokens {self.min_tokens}: must be between 0 and --record-tokens")


def claim_folder(output: Path, encoder: TextEncoder) -> None:
    """Make ``output`` ready for writing, removing what an interrupted run left there.

    Raises InputError if it holds a finished shard set, or anything that is not ours.
    """
    if (output / MANIFEST_NAME).exists():
        other = load_manifest(output).vocab.sha256 != encoder.vocab.sha256
        what = "shards of another tokenizer" if other else "a finished shard set"
        raise InputError(f"{output}: holds {what} already; choose another --output or remove it first")
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file; --output names a folder")
    if output.is_dir() and any(output.iterdir()):
        if not (output / MARKER).exists():
            raise InputError(
                f"{output}: is not empty and was not left by an interrupted prepare; choose another --output"
            )
        log.warning("%s: an interrupted prepare left this folder unfinished; building it again", output)
        for folder in (output / HELDOUT_FOLDER, output):
            _remove_leftovers(folder)
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / MARKER).touch()
    except OSError as error:
        raise InputError(f"{output}: cannot be written ({error.strerror}); choose another --output") from None


def _remove_leftovers(folder: Path) -> None:
    if not folder.is_dir():
        return
    shutil.rmtree(folder / TOKENIZER_FOLDER, ignore_errors=True)
    for path in folder.iterdir():
        if _OWN_FILE.fullmatch(path.name) or (folder.name == HELDOUT_FOLDER and path.name == MANIFEST_NAME):
            path.unlink()


class _SetWriter:
    """Gathers documents into the records and shards of one folder."""

    def __init__(self, folder: Path, options: PrepareOptions, encoder: TextEncoder, prefix: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.encoder = encoder
        self.writer = ShardWriter(folder, options.shard_bytes, prefix)
        dtype = np.uint16 if encoder.vocab.size <= 1 << 16 else np.uint32
        self.builder = RecordBuilder(options.record_tokens, options.min_tokens, dtype, self.writer.write)

    def finish(self, settings: dict[str, Any], provenance: dict[str, Any], read: ReadCounts) -> Manifest:
        """Write what is left, the tokenizer's files and the manifest."""
        self.builder.flush()
        self.writer.finish_shard()
        counts = {**asdict(self.builder.counts), "decode_errors": read.decode_errors}
        save_files(self.encoder.files, self.folder / TOKENIZER_FOLDER)
        manifest = Manifest(
            self.folder, self.encoder.vocab, tuple(self.writer.shards), counts, settings, provenance
        )
        write_manifest(manifest)
        return manifest


def is_held_out(text: str, share: float) -> bool:
    """Whether a document is held out: a keyed hash of its words (of the first 65,536 characters) decides."""
    words = " ".join(text[:_HELDOUT_CHARS].split())
    digest = hashlib.blake2b(words.encode(), key=_HELDOUT_KEY, digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2.0**64


def _batches(parts: Iterator[Part]) -> Iterator[list[Part]]:
    batch: list[Part] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += sum(map(len, part.sentences))
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def prepare(
    sources: Sequence[Source],
    encoder: TextEncoder,
    output: Path,
    options: PrepareOptions,
    provenance: dict[str, Any],
    progress: Callable[[ReadCounts, int, int], None] = lambda counts, documents, tokens: None,
) -> list[Manifest]:
    """Write the shards of ``sources`` into ``output``; return the manifests (held-out last, if any).

    ``progress`` is called after every batch with the read counts, documents and tokens so far. Raises
    InputError for bad input and RunFailure if the shards cannot be written, and then leaves nothing behind.
    """
    options.check()
    claim_folder(output, encoder)
    read = ReadCounts()
    writers = [_SetWriter(output, options, encoder)]
    if options.held_out:
        writers.append(_SetWriter(output / HELDOUT_FOLDER, options, encoder, prefix="heldout-"))
    try:
        _write_documents(sources, encoder, writers, options, read, progress)
        for writer, what in zip(writers, ("", "held-out "), strict=False):
            writer.builder.flush()
            if not writer.builder.counts.tokens:
                raise InputError(_nothing_written(what, sources, options))
        settings = {
            **asdict(options.corpus),
            "held_out": options.held_out,
            "record_tokens": options.record_tokens,
            "min_tokens": options.min_tokens,
        }
        manifests = [writer.finish(settings, provenance, read) for writer in reversed(writers)]
        (output / MARKER).unlink()
        return manifests[::-1]
    except BaseException as error:
        _clean_up(writers)
        if isinstance(error, OSError):
            raise RunFailure(f"{output}: cannot write the shards ({error})") from None
        raise


def _clean_up(writers: Sequence[_SetWriter]) -> None:
    """Remove what was written, the folders too if nothing else is in them."""
    for writer in reversed(writers):
        writer.writer.abandon()
        _remove_leftovers(writer.folder)
        (writer.folder / MANIFEST_NAME).unlink(missing_ok=True)
        if not any(writer.folder.iterdir()):
            writer.folder.rmdir()


def _nothing_written(what: str, sources: Sequence[Source], options: PrepareOptions) -> str:
    names = ", ".join(source.name for source in sources[:3])
    if options.held_out:
        return (
            f"{names}: no {what}document is left with --held-out {options.held_out};"
            " give more text or another share"
        )
    return f"{names}: no document with text in it (--min-tokens {options.min_tokens})"


def _write_documents(
    sources: Sequence[Source],
    encoder: TextEncoder,
    writers: Sequence[_SetWriter],
    options: PrepareOptions,
    read: ReadCounts,
    progress: Callable[[ReadCounts, int, int], None],
) -> None:
    control = np.array(encoder.vocab.control_ids)
    builder: RecordBuilder | None = None  # of the document being read
    for batch in _batches(read_documents(sources, options.corpus, read)):
        encoded = iter(encoder.encode([sentence for part in batch for sentence in part.sentences]))
        for part in batch:
            if builder is None:
                held_out = len(writers) > 1 and is_held_out(" ".join(part.sentences), options.held_out)
                builder = writers[held_out].builder
            for _ in part.sentences:
                ids, starts = next(encoded)
                # Whatever the tokenizer does with it, text is never a control token.
                ids[np.isin(ids, control)] = encoder.vocab.unk_id
                builder.add_sentence(ids, starts, int((ids == encoder.vocab.unk_id).sum()))
            if part.ends_document:
                builder.end_document()
                builder = None
        totals = [writer.builder.counts for writer in writers]
        progress(read, sum(count.documents for count in totals), sum(count.tokens for count in totals))
