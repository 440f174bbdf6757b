"""Gathering documents into records of bounded size."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from electra_ds.data.records import Block


@dataclass
class DocumentCounts:
    """What went into a shard set."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown: int = 0  # tokens that are [UNK]
    empty: int = 0  # documents without a token, left out
    short: int = 0  # documents with fewer tokens than --min-tokens, left out
    continued: int = 0  # documents longer than a record, which go on in the next


class RecordBuilder:
    """Collects sentences into documents and documents into blocks of at most ``record_tokens`` tokens.

    A block holds whole documents. One that is longer than a block is cut at the last sentence end that fits
    (inside a sentence if that is longer than a block too) and goes on in the next block as if it were another
    document.
    """

    def __init__(
        self, record_tokens: int, min_tokens: int, dtype: type, write: Callable[[Block, int], None]
    ) -> None:
        self.counts = DocumentCounts()
        self._record_tokens = record_tokens
        self._min_tokens = min_tokens
        self._dtype = dtype
        self._write = write
        self._document: list[tuple[np.ndarray, np.ndarray]] = []  # sentences (ids, word starts)
        self._document_tokens = 0
        self._document_unknown = 0
        self._cut = False  # the document began in an earlier block
        self._block: list[list[tuple[np.ndarray, np.ndarray]]] = []
        self._block_tokens = 0
        self._block_begins = 0  # documents that begin in the block

    def add_sentence(self, ids: np.ndarray, starts: np.ndarray, unknown: int) -> None:
        """Add a sentence (ids (n,), word starts (n,)) to the current document; an empty one changes
        nothing.
        """
        self._document_unknown += unknown
        while len(ids):
            room = self._record_tokens - self._document_tokens
            if len(ids) <= room:
                self._append(ids, starts)
                return
            if not self._document_tokens:
                self._append(ids[:room], starts[:room])
                ids, starts = ids[room:], starts[room:]
            self._emit_document()
            self._cut = True

    def _append(self, ids: np.ndarray, starts: np.ndarray) -> None:
        self._document.append((ids, starts))
        self._document_tokens += len(ids)

    def end_document(self) -> None:
        """The document is complete."""
        if not self._cut and self._document_tokens < max(self._min_tokens, 1):
            if self._document_tokens:
                self.counts.short += 1
            else:
                self.counts.empty += 1
            self._document, self._document_tokens = [], 0
        else:
            self.counts.documents += 1
            self.counts.continued += self._cut
            self.counts.unknown += self._document_unknown
            if self._document_tokens:
                self._emit_document()
        self._cut = False
        self._document_unknown = 0

    def _emit_document(self) -> None:
        if self._block_tokens + self._document_tokens > self._record_tokens:
            self.flush()
        self._block.append(self._document)
        self._block_tokens += self._document_tokens
        self._block_begins += not self._cut
        self.counts.tokens += self._document_tokens
        self.counts.sentences += len(self._document)
        self._document, self._document_tokens = [], 0

    def flush(self) -> None:
        """Write the block that is being filled, if there is anything in it."""
        if not self._block:
            return
        sentences = [sentence for document in self._block for sentence in document]
        block = Block(
            tokens=np.concatenate([ids for ids, _ in sentences]).astype(self._dtype),
            sentences=np.cumsum([len(ids) for ids, _ in sentences]).astype(np.int32),
            documents=np.cumsum([len(document) for document in self._block]).astype(np.int32),
            word_starts=np.concatenate([starts for _, starts in sentences]),
        )
        self._write(block, self._block_begins)
        self._block, self._block_tokens, self._block_begins = [], 0, 0
