"""Random numbers as a pure function of integers.

Every random choice of the stream is read from a counter-based generator (Philox4x64-10) whose key is (seed,
purpose) and whose counter starts at (epoch, lane, block). Only its raw 64-bit words are used: numpy keeps
those fixed for ever, which it does not promise for the distributions built on them.
"""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

_WORD = (1 << 64) - 1


class Purpose(IntEnum):
    """One independent stream of numbers for each kind of choice."""

    UNITS = 1  # order of shards or records in an epoch
    BLOCKS = 2  # order of records in a shard
    EXAMPLES = 3  # order of documents, segments, lengths and rows in a block
    MASKS = 4  # masked positions and the uniform numbers of the sampled replacements


def keyed_bits(
    seed: int, purpose: Purpose, *, epoch: int = 0, lane: int = 0, block: int = 0
) -> np.random.Philox:
    """Return the bit generator for one choice; equal arguments give equal numbers everywhere."""
    key = np.array([seed & _WORD, int(purpose)], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, epoch, lane, block], dtype=np.uint64))


def random_words(bits: np.random.Philox, size: int) -> np.ndarray:
    """Return (size,) uint64 random words."""
    return np.asarray(bits.random_raw(size))


def permutation(bits: np.random.Philox, size: int) -> np.ndarray:
    """Return a uniform permutation of ``range(size)``, int64."""
    return np.argsort(random_words(bits, size), kind="stable")


def uniform_floats(bits: np.random.Philox) -> Iterator[float]:
    """Yield floats in [0, 1) without end."""
    while True:
        yield from ((random_words(bits, 1024) >> np.uint64(11)) * 2.0**-53).tolist()


def uniform_float32(words: np.ndarray) -> np.ndarray:
    """Turn raw 64-bit words into float32 numbers in [0, 1); all 24 bits of the significand are random."""
    return (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
