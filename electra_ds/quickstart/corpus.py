"""A training text and a held-out text, out of what the installation carries or of the user's own files.

Both are written as ``train.txt`` and ``heldout.txt``: a paragraph on a line, documents separated by a blank
line. A document goes to one of them as a whole, by the hash of its name, and no paragraph stands in both.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra_ds.config.errors import InputError

if TYPE_CHECKING:
    from electra_ds.data.inputs import Source

TRAIN_NAME, HELDOUT_NAME, REPORT_NAME = "train.txt", "heldout.txt", "corpus.json"
MIN_BYTES = 5_000_000
MIN_INPUT_BYTES = 500_000  # of the user's own text: less gives no vocabulary worth the name
LINES_PER_UNIT = 50  # of the user's documents are held out together, so that one long document will do
HELDOUT_SHARE = 0.04  # of the documents
SHINGLE_WORDS = 6
MAX_SEEN_SHARE = 0.4  # of a paragraph's shingles that earlier paragraphs may hold
_WORD = re.compile(r"[^\W\d_]+")


@dataclass
class CorpusReport:
    """What was written, and what was left out as said before."""

    documents: int = 0
    paragraphs: int = 0
    train_bytes: int = 0
    heldout_bytes: int = 0
    repeated: int = 0  # paragraphs that stood there before, word for word
    similar: int = 0  # paragraphs most of which stood there before

    @property
    def bytes(self) -> int:
        """Size of both texts."""
        return self.train_bytes + self.heldout_bytes

    def sentence(self) -> str:
        """Say it in a line."""
        repeated = self.repeated + self.similar
        return (
            f"{self.bytes / 1e6:.1f} MB of text, {self.documents:,} documents, {self.paragraphs:,} paragraphs"
            f" ({repeated:,} repeated ones left out); {self.heldout_bytes / 1e6:.2f} MB of it held out"
        )


def read_report(folder: Path) -> CorpusReport:
    """Read what :meth:`CorpusWriter.finish` wrote."""
    return CorpusReport(**json.loads((folder / REPORT_NAME).read_text(encoding="utf-8")))


class Deduplicator:
    """Says of each paragraph whether it is new.

    Libraries say the same thing in a thousand places with another name put in. So a paragraph counts as said
    before when more than ``MAX_SEEN_SHARE`` of its runs of six words have been seen, wherever they stood.
    """

    def __init__(self, report: CorpusReport) -> None:
        self._report = report
        self._exact: set[str] = set()
        self._shingles: set[int] = set()

    def is_new(self, paragraph: str) -> bool:
        """Remember the paragraph; return whether it is new."""
        if paragraph in self._exact:
            self._report.repeated += 1
            return False
        self._exact.add(paragraph)
        words = _WORD.findall(paragraph.lower())
        count = max(1, len(words) - SHINGLE_WORDS + 1)
        shingles = [hash(tuple(words[begin : begin + SHINGLE_WORDS])) for begin in range(count)]
        seen = sum(shingle in self._shingles for shingle in shingles)
        self._shingles.update(shingles)
        if seen > MAX_SEEN_SHARE * count:
            self._report.similar += 1
            return False
        return True


def is_held_out(name: str, share: float = HELDOUT_SHARE) -> bool:
    """Whether the document of this name is held out; the same on every machine."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2.0**64


class CorpusWriter:
    """Writes both texts under temporary names; ``finish`` gives them their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.report = CorpusReport()
        self._folder = folder
        self._names = (TRAIN_NAME, HELDOUT_NAME)
        self._files = [open(folder / f"{name}.tmp", "w", encoding="utf-8") for name in self._names]  # noqa: SIM115
        self.sizes = [0, 0]  # bytes of training and held-out text

    def write(self, paragraphs: Iterable[str], held_out: bool) -> None:
        """Write a document; one without paragraphs is left out."""
        text = "".join(f"{paragraph}\n" for paragraph in paragraphs)
        if not text:
            return
        self._files[held_out].write(text + "\n")
        self.sizes[held_out] += len(text.encode()) + 1
        self.report.documents += 1
        self.report.paragraphs += text.count("\n")

    def finish(self) -> CorpusReport:
        """Close, rename and describe the texts; ``corpus.json`` comes last."""
        self.close()
        self.report.train_bytes, self.report.heldout_bytes = self.sizes
        for name in self._names:
            os.replace(self._folder / f"{name}.tmp", self._folder / name)
        (self._folder / REPORT_NAME).write_text(json.dumps(asdict(self.report), indent=1) + "\n")
        return self.report

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def abandon(self) -> None:
        """Remove what was written."""
        self.close()
        for name in self._names:
            (self._folder / f"{name}.tmp").unlink(missing_ok=True)


def build_from_installation(folder: Path, processes: int | None = None) -> CorpusReport:
    """Write the texts out of what this Python installation carries (see ``installed.py``).

    Raises InputError if that is less than ``MIN_BYTES``; nothing is then left in ``folder``.
    """
    from tqdm import tqdm

    from electra_ds.quickstart.installed import documents, find_files

    files = find_files()
    writer = CorpusWriter(folder)
    unseen = Deduplicator(writer.report)
    workers = processes or max(1, min(8, os.cpu_count() or 1))
    try:
        with tqdm(total=len(files), desc="reading", unit=" files", disable=None) as bar:
            for document, read in documents(files, workers):
                kept = [paragraph for paragraph in document.paragraphs if unseen.is_new(paragraph)]
                writer.write(kept, is_held_out(document.name))
                bar.update(read - bar.n)
            bar.update(len(files) - bar.n)
        _check_size(sum(writer.sizes), MIN_BYTES)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def build_from_files(inputs: Sequence[str], folder: Path) -> CorpusReport:
    """Write the texts out of the user's files (those that ``electra-ds prepare`` reads), in flat memory.

    Documents are cut into units of ``LINES_PER_UNIT`` lines; a unit's text decides where it goes, and a line
    that is held out is left out of training wherever else it stands. Raises InputError for what is missing,
    empty, too little or not UTF-8; nothing is then left in ``folder``.
    """
    from electra_ds.data.inputs import find_inputs

    if "-" in inputs:
        raise InputError("--input -: quickstart reads its text twice; give files or folders")
    sources = find_inputs(inputs)
    names = ", ".join(source.name for source in sources[:3])
    writer = CorpusWriter(folder)
    try:
        held_out: set[str] = set()
        for unit in _units(sources):
            if is_held_out("\n".join(unit)):
                new = [line for line in dict.fromkeys(unit) if line not in held_out]
                held_out.update(new)
                writer.write(new, held_out=True)
        for unit in _units(sources):
            if not is_held_out("\n".join(unit)):
                kept = [line for line in unit if line not in held_out]
                writer.report.repeated += len(unit) - len(kept)
                writer.write(kept, held_out=False)
        if not sum(writer.sizes):
            raise InputError(f"{names}: no text in it; give --input files with text")
        _check_size(sum(writer.sizes), MIN_INPUT_BYTES, names)
        if not all(writer.sizes):
            raise InputError(f"{names}: too few lines to hold some out; give text with a paragraph on a line")
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _units(sources: Sequence["Source"]) -> Iterator[list[str]]:
    """Yield the documents' lines, stripped, at most ``LINES_PER_UNIT`` at a time."""
    from electra_ds.data.corpus import CorpusOptions, read_documents
    from electra_ds.data.inputs import ReadCounts

    lines: list[str] = []
    for part in read_documents(sources, CorpusOptions(sentences="newline"), ReadCounts()):
        lines += part.sentences
        while len(lines) >= LINES_PER_UNIT or (lines and part.ends_document):
            yield lines[:LINES_PER_UNIT]
            lines = lines[LINES_PER_UNIT:]


def _check_size(size: int, least: int, names: str = "") -> None:
    if size < least:
        found = f"{names}: only" if names else "this Python installation carries only"
        raise InputError(
            f"{found} {size / 1e6:.2f} MB of text, quickstart needs {least / 1e6:g} MB;"
            f" give {'more' if names else 'your own'} text with --input PATH"
        )
