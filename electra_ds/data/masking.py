"""Which positions are masked: pure functions over the rows of a block. R rows, L length, M slots.

Positions are drawn without replacement. Units (tokens, words, or runs of one to three words) are put in
random order, and whole units are taken until ``mask_prob`` of the row's maskable tokens is reached; the unit
that crosses that number is taken with the probability that makes the expected count exact.
"""

import math

import numpy as np

from electra_ds.data.keyed import random_words, uniform_float32

_POSITION_BITS = np.uint64(16)
_POSITION_MASK = np.uint64(0xFFFF)
_NOTHING = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_NGRAM_LENGTHS = 3  # an n-gram unit is one to three whole words
_UNIT_MARGIN = {"token": 0, "whole_word": 6, "ngram": 16}  # slots for the last unit taken, beyond the mean


def num_slots(seq_len: int, mask_prob: float, unit: str) -> int:
    """M: prediction slots of a row, fixed for a run."""
    most = seq_len - 2  # [CLS] and [SEP] are never masked
    return max(1, min(most, math.ceil(mask_prob * most - 1e-9) + _UNIT_MARGIN[unit]))


def unit_starts(
    maskable: np.ndarray, word_starts: np.ndarray, unit: str, bits: np.random.Philox
) -> np.ndarray:
    """Mark the tokens that begin a unit. All arrays (R, L) bool; no unit goes over a special token."""
    if unit == "token":
        return maskable
    starts = word_starts & maskable
    if unit == "whole_word":
        return starts
    after_special = np.zeros_like(maskable)
    after_special[:, 1:] = ~maskable[:, :-1]
    after_special[:, 0] = True
    words = np.flatnonzero(starts)
    lengths = random_words(bits, len(words)) % np.uint64(_NGRAM_LENGTHS) + np.uint64(1)
    begins = np.cumsum(lengths) - lengths  # n-grams laid end to end over all words of the block
    chosen = np.zeros(len(words), dtype=bool)
    chosen[begins[begins < len(words)].astype(np.int64)] = True
    chosen |= after_special.ravel()[words]
    result = np.zeros(maskable.size, dtype=bool)
    result[words[chosen]] = True
    return result.reshape(maskable.shape)


def choose_positions(
    maskable: np.ndarray, starts: np.ndarray, mask_prob: float, slots: int, bits: np.random.Philox
) -> tuple[np.ndarray, np.ndarray]:
    """Return (positions (R, slots) int32 in increasing order, then zeros; count (R,) int32 of them).

    ``maskable`` and ``starts`` are (R, L) bool. A row with anything maskable gets at least one position, so
    rows in which a single unit exceeds the share (n-grams at length 32) are masked a little more. A unit that is wider than all slots is cut; one that no longer fits beside others is left out. ``slots`` is
    at most L.
    """
    rows, length = maskable.shape
    available = maskable.sum(axis=1)
    units = np.cumsum(starts.ravel()) - 1
    keys = random_words(bits, max(1, int(units[-1]) + 1)) & ~_POSITION_MASK
    position = np.arange(length, dtype=np.uint64)
    keyed = np.where(maskable, keys[units].reshape(rows, length) | position, _NOTHING)
    keyed.sort(axis=1)  # units in random order, the tokens of one side by side
    order = keyed >> _POSITION_BITS
    wanted = mask_prob * available
    crossing = np.minimum(np.floor(wanted).astype(np.int64), np.maximum(available - 1, 0))
    group = order[np.arange(rows), crossing][:, None]
    below = (order < group).sum(axis=1)  # tokens of the units before the crossing one
    upto = np.minimum((order <= group).sum(axis=1), available)
    chance = (wanted - below) / np.maximum(upto - below, 1)
    count: np.ndarray = np.where(uniform_float32(random_words(bits, rows)) < chance, upto, below)
    count = np.where(count < 1, upto, count)
    count = np.where(count > slots, np.where(below > 0, below, slots), count)
    count = np.minimum(count, available).astype(np.int32)
    chosen = (keyed[:, :slots] & _POSITION_MASK).astype(np.int32)
    used = np.arange(slots) < count[:, None]
    ordered: np.ndarray = np.sort(np.where(used, chosen, length), axis=1)
    return np.where(used, ordered, 0).astype(np.int32), count


def mask_rows(
    maskable: np.ndarray,
    word_starts: np.ndarray,
    mask_prob: float,
    unit: str,
    slots: int,
    bits: np.random.Philox,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (positions (R, M) int32, count (R,) int32, draws (R, M) float32 in [0, 1)) for the rows of a
    block.
    """
    starts = unit_starts(maskable, word_starts, unit, bits)
    positions, count = choose_positions(maskable, starts, mask_prob, slots, bits)
    draws = uniform_float32(random_words(bits, positions.size)).reshape(positions.shape)
    return positions, count, draws
