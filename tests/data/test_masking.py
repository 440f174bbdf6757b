"""Masked positions: where they may be, how many, in which units. R rows, L length, M slots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.data.keyed import Purpose, keyed_bits
from electra_ds.data.masking import choose_positions, mask_rows, num_slots, unit_starts

UNITS = ["token", "whole_word", "ngram"]


def _bits(seed):
    return keyed_bits(seed, Purpose.MASKS)


def _rows(seed, rows, length, special=0.1, word=0.6, empty=0.2):
    """Random rows: special tokens anywhere, padding at the end, a word start after each special token."""
    rng = np.random.default_rng(seed)
    maskable = rng.random((rows, length)) >= special
    maskable[:, 0] = False
    padding = np.where(rng.random(rows) < empty, length, rng.integers(0, length, rows))
    maskable &= np.arange(length) < length - padding[:, None]
    starts = rng.random((rows, length)) < word
    starts[:, 1:] |= ~maskable[:, :-1]
    return maskable, starts & maskable


@st.composite
def _cases(draw):
    length = draw(st.integers(8, 70))
    maskable, starts = _rows(
        draw(st.integers(0, 2**32)),
        draw(st.integers(1, 12)),
        length,
        word=draw(st.sampled_from([0.1, 0.6, 1.0])),
    )
    prob = draw(st.sampled_from([0.01, 0.15, 0.25, 0.5, 0.9]))
    unit = draw(st.sampled_from(UNITS))
    return maskable, starts, prob, unit, num_slots(length, prob, unit), draw(st.integers(0, 2**32))


@given(_cases())
def test_positions_are_distinct_never_special_and_at_least_one(case):
    maskable, starts, prob, unit, slots, seed = case
    positions, count, draws = mask_rows(maskable, starts, prob, unit, slots, _bits(seed))
    assert positions.shape == draws.shape == (len(maskable), slots)
    assert ((draws >= 0) & (draws < 1)).all()
    assert draws.dtype == np.float32
    for row, number, allowed in zip(positions, count, maskable, strict=True):
        taken = row[:number].tolist()
        assert sorted(set(taken)) == taken
        assert allowed[taken].all()
        assert not row[number:].any()
        assert (number >= 1) == allowed.any()


@given(_cases())
def test_units_are_masked_whole(case):
    maskable, starts, prob, unit, slots, seed = case
    begins = unit_starts(maskable, starts, unit, _bits(seed))
    positions, count = choose_positions(maskable, begins, prob, slots, _bits(seed))
    for row in range(len(maskable)):
        masked = np.zeros(maskable.shape[1], dtype=bool)
        masked[positions[row, : count[row]]] = True
        members = np.where(maskable[row], np.cumsum(begins[row]), 0)
        for number in set(members[masked].tolist()):
            whole = masked[members == number].all()
            assert whole or count[row] == slots  # only a unit wider than all slots is cut
            assert whole or set(members[masked].tolist()) == {number}


def test_a_unit_that_no_longer_fits_is_left_out():
    """Words of nine tokens: one is about the share of the row, and two are more than there are slots."""
    maskable = np.ones((2000, 64), dtype=bool)
    maskable[:, 0] = False
    starts = np.tile(np.arange(64) % 9 == 1, (2000, 1))
    slots = num_slots(64, 0.15, "whole_word")
    assert 9 < slots < 18
    assert set(choose_positions(maskable, starts, 0.15, slots, _bits(1))[1].tolist()) == {9}


@given(_cases())
def test_ngrams_are_one_to_three_words_within_a_segment(case):
    maskable, starts, _, _, _, seed = case
    begins = unit_starts(maskable, starts, "ngram", _bits(seed))
    assert not (begins & ~starts).any()
    for row in range(len(maskable)):
        words = 0
        for column in range(1, maskable.shape[1]):
            if not maskable[row, column]:
                words = 0
                continue
            if not maskable[row, column - 1]:
                assert begins[row, column]
            words = 1 if begins[row, column] else words + starts[row, column]
            assert words <= 3


def test_ngram_lengths_are_equally_frequent():
    maskable = np.ones((400, 130), dtype=bool)
    maskable[:, 0] = False
    begins = unit_starts(maskable, maskable, "ngram", _bits(5))
    at = np.flatnonzero(begins[:, 1:])
    inner = np.diff(at)
    shares = np.bincount(inner, minlength=4)[1:4] / len(inner)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.015)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("prob", "length"), [(0.15, 128), (0.25, 128), (0.15, 64), (0.3, 512)])
def test_the_mean_number_is_the_probability_times_what_can_be_masked(unit, prob, length):
    rng = np.random.default_rng(1)
    rows = 150_000 // length
    maskable = np.ones((rows, length), dtype=bool)
    maskable[:, [0, length - 1]] = False
    maskable[np.arange(rows), rng.integers(10, length, rows)] = False
    starts = rng.random((rows, length)) < 0.6
    _, count, _ = mask_rows(maskable, starts, prob, unit, num_slots(length, prob, unit), _bits(9))
    assert count.sum() / maskable.sum() == pytest.approx(prob, rel=0.01 if unit == "token" else 0.02)


@pytest.mark.parametrize("unit", UNITS)
def test_every_position_is_masked_equally_often(unit):
    rows, length = 20_000, 24
    maskable = np.ones((rows, length), dtype=bool)
    maskable[:, [0, 12, 23]] = False
    starts = np.random.default_rng(2).random((rows, length)) < 0.7
    starts[:, [1, 13]] = True
    positions, count, _ = mask_rows(maskable, starts, 0.2, unit, num_slots(length, 0.2, unit), _bits(3))
    hits = np.bincount(positions[np.arange(positions.shape[1]) < count[:, None]], minlength=length)
    assert not hits[[0, 12, 23]].any()
    frequency = hits[maskable[0]] / rows
    assert frequency == pytest.approx(frequency.mean(), rel=0.08)


def test_token_counts_differ_by_less_than_one_from_the_exact_number():
    maskable, starts = _rows(4, 300, 100)
    _, count, _ = mask_rows(maskable, starts, 0.15, "token", num_slots(100, 0.15, "token"), _bits(4))
    exact = 0.15 * maskable.sum(1)
    assert ((np.abs(count - exact) < 1) | (count == 1)).all()


def test_rows_without_anything_to_mask_give_nothing():
    nothing = np.zeros((3, 16), dtype=bool)
    positions, count, _ = mask_rows(nothing, nothing, 0.15, "token", 3, _bits(1))
    assert not positions.any()
    assert not count.any()


def test_one_token_is_always_masked():
    maskable = np.zeros((50, 16), dtype=bool)
    maskable[:, 5] = True
    for unit in UNITS:
        positions, count, _ = mask_rows(maskable, maskable, 0.01, unit, 1, _bits(1))
        assert (positions == 5).all()
        assert (count == 1).all()


def test_slots_of_the_published_lengths_hold_the_expected_number():
    assert num_slots(128, 0.15, "token") == 19
    assert num_slots(512, 0.15, "token") >= 0.15 * 510
    assert num_slots(512, 0.25, "token") >= 0.25 * 510
    assert num_slots(8, 0.9, "ngram") == 6


def test_draws_are_uniform_and_carry_all_bits():
    maskable = np.ones((3000, 20), dtype=bool)
    _, _, draws = mask_rows(maskable, maskable, 0.5, "token", 10, _bits(7))
    ordered = np.sort(draws.ravel().astype(np.float64))
    grid = (np.arange(len(ordered)) + 0.5) / len(ordered)
    assert np.abs(ordered - grid).max() < 1.95 / np.sqrt(len(ordered))  # Kolmogorov-Smirnov, p = 0.001
    assert len(np.unique(ordered * 2**24 % 256)) == 256
