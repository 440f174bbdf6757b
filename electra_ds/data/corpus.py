"""From sources of text to documents, in parts of bounded size.

A line ends at ``\\n`` only; other characters that some tools take for line ends (form feed, U+0085, U+2028
...) are white space. A very long line is delivered in pieces, cut at white space where there is any, so
memory does not grow with a line, a document or a file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from electra_ds.config.errors import InputError
from electra_ds.data.inputs import OnDecodeError, ReadCounts, Source, read_text
from electra_ds.data.sentences import split_sentences

PIECE_CHARS = 1 << 16  # longest piece of a line, and about the size of a part of a document
_SLICE_CHARS = 1 << 20
MAX_RECORD_CHARS = 1 << 29  # longest JSON line, which must be parsed whole
_ODD_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_BREAKS = re.compile(r"[\s。！？｡]")


@dataclass(frozen=True)
class CorpusOptions:
    """How text is read; stored in the manifest."""

    text_field: str = "text"  # of a .jsonl record
    document_separator: Literal["blank", "line", "none"] = "blank"  # in .txt; a .jsonl record is a document
    sentences: Literal["newline", "rule", "none"] = "rule"
    on_decode_error: OnDecodeError = "fail"


class Piece(NamedTuple):
    """A line or a part of one."""

    text: str
    begins: bool  # with the line's first character
    ends: bool  # with the line's last


class Part(NamedTuple):
    """Some sentences of a document, and whether it ends after them."""

    sentences: list[str]
    ends_document: bool


def _cut(text: str) -> int:
    """Where to cut text that is longer than a piece: after the last break, if one is not too far back."""
    for match in _BREAKS.finditer(text[PIECE_CHARS - 1 : PIECE_CHARS // 2 : -1]):
        return PIECE_CHARS - match.start()
    return PIECE_CHARS


def _pieces(text: str, begins: bool = True) -> Iterator[Piece]:
    """Cut one whole line (or the rest of one) into pieces."""
    while len(text) > PIECE_CHARS:
        at = _cut(text)
        yield Piece(text[:at], begins, False)
        text, begins = text[at:], False
    yield Piece(text, begins, True)


def _slices(text: str) -> Iterator[str]:
    """Chunks of a long text, so that cutting it costs time in proportion to its length."""
    for begin in range(0, len(text), _SLICE_CHARS):
        yield text[begin : begin + _SLICE_CHARS]


def _lines(chunks: Iterator[str]) -> Iterator[Piece]:
    """Split chunks of text into lines, long ones in pieces."""
    carry = ""
    begins = True
    for chunk in chunks:
        chunk = _ODD_LINE_ENDS.sub(" ", chunk)
        *lines, carry = (carry + chunk).split("\n")
        for line in lines:
            yield from _pieces(line, begins)
            begins = True
        while len(carry) > PIECE_CHARS:
            at = _cut(carry)
            yield Piece(carry[:at], begins, False)
            carry, begins = carry[at:], False
    if carry:
        yield Piece(carry, begins, True)


def _json_lines(chunks: Iterator[str], name: str) -> Iterator[str]:
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        first, *rest = chunk.split("\n")
        parts.append(first)
        length += len(first)
        for line in rest:
            yield "".join(parts)
            parts, length = [line], len(line)
        if length > MAX_RECORD_CHARS:
            raise InputError(f"{name}: a line of more than {MAX_RECORD_CHARS} characters; cut the record")
    yield "".join(parts)


def _record_texts(source: Source, options: CorpusOptions, counts: ReadCounts) -> Iterator[str]:
    """Yield the text of each record of a .jsonl source."""
    lines = _json_lines(read_text(source, options.on_decode_error, counts), source.name)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source.name}: line {number} is not JSON ({error})") from None
        if not isinstance(record, dict) or options.text_field not in record:
            names = ", ".join(sorted(record)[:8]) if isinstance(record, dict) else type(record).__name__
            raise InputError(
                f"{source.name}: line {number} has no field {options.text_field!r};"
                f" say --text-field with one that it has ({names})"
            )
        text = record[options.text_field]
        if not isinstance(text, str | None):
            raise InputError(f"{source.name}: line {number}: field {options.text_field!r} is not text")
        yield _without_surrogates(text or "", counts)


def _without_surrogates(text: str, counts: ReadCounts) -> str:
    """JSON can escape half a character (a lone surrogate), which no encoder takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        counts.decode_errors += 1
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def read_lines(
    sources: Sequence[Source], options: CorpusOptions, counts: ReadCounts
) -> Iterator[Piece | None]:
    """Yield the pieces of every line, and None where a document ends (never twice in a row, except for an
    empty .jsonl record).
    """
    for source in sources:
        if source.format == "jsonl":
            for text in _record_texts(source, options, counts):
                yield from _lines(_slices(text))
                yield None
            continue
        open_document = False
        for piece in _lines(read_text(source, options.on_decode_error, counts)):
            blank = piece.begins and piece.ends and not piece.text.strip()
            if not blank:
                yield piece
                open_document = True
            ends = blank if options.document_separator == "blank" else options.document_separator == "line"
            if ends and piece.ends and open_document:
                yield None
                open_document = False
        if open_document:
            yield None


def read_documents(sources: Sequence[Source], options: CorpusOptions, counts: ReadCounts) -> Iterator[Part]:
    """Yield the documents in order, each as one part or several of at most about 131,072 characters."""
    sentences: list[str] = []
    length = 0
    for piece in read_lines(sources, options, counts):
        if piece is None:
            yield Part(_joined(sentences, options), True)
            sentences, length = [], 0
            continue
        if options.sentences == "rule":
            sentences += split_sentences(piece.text)
        elif piece.text.strip():
            sentences.append(piece.text.strip())
        length += len(piece.text)
        if length > PIECE_CHARS:
            yield Part(_joined(sentences, options), False)
            sentences, length = [], 0


def _joined(sentences: list[str], options: CorpusOptions) -> list[str]:
    return [" ".join(sentences)] if options.sentences == "none" and sentences else sentences
