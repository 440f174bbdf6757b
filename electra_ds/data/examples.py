"""From a block of documents to rows of examples.

An example is ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]`` from consecutive sentences of one document, cut
by the rules of the reference implementation: one example in ten has a single segment; otherwise the first
segment aims at half the length and a coin decides about the sentence that crosses that point; one example in
twenty aims at a random length. There are two differences. What the reference truncates goes on in the next
example, so no token is lost; and with packing an example is built for the space that its row has left, so
rows are full.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from electra_ds.data.keyed import permutation, uniform_floats
from electra_ds.data.records import Block
from electra_ds.data.vocabulary import Vocabulary

MIN_SPACE = 8  # a packed row with less space left is closed
MIN_SEQ_LEN = 8
SINGLE_SEGMENT_SHARE = 0.1
RANDOM_LENGTH_SHARE = 0.05
SHORTEST_RANDOM_LENGTH = 5


class Example(NamedTuple):
    """``first + second`` tokens of the block from ``start``, at ``column`` of ``row``."""

    row: int
    column: int
    start: int
    first: int
    second: int  # 0: a single segment

    @property
    def length(self) -> int:
        """Positions taken, special tokens included."""
        return self.first + self.second + (3 if self.second else 2)


@dataclass(frozen=True)
class Rows:
    """R rows of length L as arrays."""

    ids: np.ndarray  # (R, L) int32, pad_id where empty
    segments: np.ndarray  # (R, L) int32, number of the example in its row from 1, 0 = padding
    positions: np.ndarray  # (R, L) int32, position in the example
    token_types: np.ndarray  # (R, L) int32, 0 or 1
    maskable: np.ndarray  # (R, L) bool, neither special nor padding
    word_starts: np.ndarray  # (R, L) bool, the first token of a word, and the first of each segment


def cut_segments(
    ends: Sequence[int],
    at: int,
    stop: int,
    space: int,
    kind: str,
    whole_sentences: bool,
    draw: Iterator[float],
) -> tuple[int, int]:
    """Return (first, second): how many tokens from ``at`` the next example's segments take.

    ``ends`` are the increasing end offsets of all sentences of the block, ``stop`` is the document's end,
    ``space`` the positions available. ``first + second`` is at least 1 and fits the space with its special
    tokens.
    """
    if kind == "full_sentences":
        reach = min(stop - at, space - 2)
        if whole_sentences and at + reach < stop:
            last = bisect_left(ends, at + reach + 1) - 1  # the last sentence that ends within reach
            if last >= 0 and ends[last] > at:
                reach = ends[last] - at
        return reach, 0
    single, coin, short, length = next(draw), next(draw), next(draw), next(draw)
    target = space
    if short < RANDOM_LENGTH_SHARE and space > SHORTEST_RANDOM_LENGTH:
        target = SHORTEST_RANDOM_LENGTH + int(length * (space - SHORTEST_RANDOM_LENGTH + 1))
    here = bisect_left(ends, at + 1)  # the sentence that holds token `at`
    last = bisect_left(ends, at + target, here)
    collected = min(ends[last] if last < len(ends) else stop, stop) - at
    if single < SINGLE_SEGMENT_SHARE:
        return min(collected, space - 2), 0
    aim = (target - 3) // 2
    border = max(bisect_left(ends, at + aim, here) - 1, here)
    first = ends[border] - at
    if first < aim and at + first < stop and coin < 0.5:
        first = ends[border + 1] - at
    if first >= collected or first >= space - 3:
        return min(collected, space - 2), 0
    return first, min(collected, space - 3) - first


def plan_examples(
    block: Block, order: Sequence[int], seq_len: int, kind: str, pack: bool, draw: Iterator[float]
) -> list[Example]:
    """Place the documents, taken in ``order``, into rows. Every token is in exactly one example, in order."""
    ends = block.sentences.tolist()
    stops = block.sentences[block.documents - 1].tolist()  # end of each document in tokens
    plan = []
    row = column = 0
    for document in order:
        at = stops[document - 1] if document else 0
        stop = stops[document]
        while at < stop:
            if column and (not pack or seq_len - column < MIN_SPACE):
                row, column = row + 1, 0
            first, second = cut_segments(ends, at, stop, seq_len - column, kind, not pack, draw)
            example = Example(row, column, at, first, second)
            plan.append(example)
            column += example.length
            at += first + second
    return plan


def fill_rows(block: Block, plan: Sequence[Example], seq_len: int, vocab: Vocabulary) -> Rows:
    """Write the planned examples into arrays."""
    row, column, start, first, second = np.array(plan, dtype=np.int64).T
    length = first + second + np.where(second > 0, 3, 2)
    begin = np.cumsum(length) - length  # of each example in the flat order of all their positions
    total = int(length.sum())
    flat_row_begin = row * seq_len + column
    example = np.repeat(np.arange(len(plan)), length)
    within = np.arange(total) - begin[example]
    target = flat_row_begin[example] + within
    # Without special tokens: one [CLS] before the first segment, and one [SEP] more before the second.
    in_second = within > (first + 1)[example]
    source = np.minimum(start[example] + within - 1 - in_second, len(block.tokens) - 1)
    ids = block.tokens[source].astype(np.int32)
    special = np.zeros(total, dtype=bool)
    closing = begin + length - 1
    middle = (begin + first + 1)[second > 0]
    special[begin] = special[closing] = special[middle] = True
    ids[begin] = vocab.cls_id
    ids[closing] = ids[middle] = vocab.sep_id
    word_starts = block.word_starts[source]
    word_starts[begin + 1] = word_starts[middle + 1] = True
    new_row = np.r_[True, row[1:] != row[:-1]]
    index = np.arange(len(plan))
    number = index - np.maximum.accumulate(np.where(new_row, index, 0)) + 1

    size = (int(row[-1]) + 1) * seq_len

    def spread(values: np.ndarray, empty: int, dtype: type) -> np.ndarray:
        array: np.ndarray = np.full(size, empty, dtype=dtype)
        array[target] = values
        return array.reshape(-1, seq_len)

    return Rows(
        ids=spread(ids, vocab.pad_id, np.int32),
        segments=spread(number[example], 0, np.int32),
        positions=spread(within, 0, np.int32),
        token_types=spread(in_second & (second > 0)[example], 0, np.int32),
        maskable=spread(~special, 0, np.bool_),
        word_starts=spread(word_starts & ~special, 0, np.bool_),
    )


def block_rows(
    block: Block,
    seq_len: int,
    kind: str,
    pack: bool,
    vocab: Vocabulary,
    bits: np.random.Philox,
    shuffle: bool = True,
) -> Rows:
    """Return the rows of a block: documents in random order, then rows in random order (if ``shuffle``)."""
    documents = len(block.documents)
    order = permutation(bits, documents).tolist() if shuffle else range(documents)
    plan = plan_examples(block, order, seq_len, kind, pack, uniform_floats(bits))
    rows = fill_rows(block, plan, seq_len, vocab)
    if not shuffle:
        return rows
    mixed = permutation(bits, len(rows.ids))
    return Rows(*(getattr(rows, name)[mixed] for name in Rows.__dataclass_fields__))
