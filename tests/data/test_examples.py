"""Rows of a block: nothing is lost, examples have the reference's form, rows are full."""

from itertools import repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.data.examples import MIN_SPACE, block_rows, fill_rows, plan_examples
from electra_ds.data.keyed import Purpose, keyed_bits, uniform_floats
from electra_ds.data.records import Block
from electra_ds.data.vocabulary import Vocabulary

VOCAB = Vocabulary(size=60_000, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, sha256="")
KINDS = ["reference", "full_sentences"]


def _block(documents):
    """A block of documents given as lists of sentence lengths; every token is another number from 5 on."""
    lengths = [length for document in documents for length in document]
    total = sum(lengths)
    return Block(
        tokens=np.arange(5, 5 + total).astype(np.uint16),
        sentences=np.cumsum(lengths).astype(np.int32),
        documents=np.cumsum([len(document) for document in documents]).astype(np.int32),
        word_starts=np.random.default_rng(total).random(total) < 0.5,
    )


def _bits(seed):
    return keyed_bits(seed, Purpose.EXAMPLES)


_documents = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=6), min_size=1, max_size=6)


def _examples_of(rows, row):
    """The examples of a row, each a list of columns."""
    numbers = rows.segments[row]
    return [np.flatnonzero(numbers == number) for number in range(1, numbers.max() + 1)]


@given(
    _documents,
    st.sampled_from([8, 9, 16, 33, 64, 128]),
    st.sampled_from(KINDS),
    st.booleans(),
    st.integers(0, 99),
)
def test_rows_hold_every_token_once_in_well_formed_examples(documents, seq_len, kind, pack, seed):
    block = _block(documents)
    plan = plan_examples(block, range(len(documents)), seq_len, kind, pack, uniform_floats(_bits(seed)))
    rows = fill_rows(block, plan, seq_len, VOCAB)
    assert rows.ids[rows.maskable].tolist() == block.tokens.tolist()  # all, once, in order
    owner = np.repeat(np.arange(len(documents)), [sum(document) for document in documents])
    for row in range(len(rows.ids)):
        ids, numbers = rows.ids[row], rows.segments[row]
        used = int((numbers > 0).sum())
        assert (numbers[:used] > 0).all()
        assert (np.diff(numbers[:used]) >= 0).all()
        assert (ids[used:] == VOCAB.pad_id).all()
        assert not rows.maskable[row, used:].any()
        examples = _examples_of(rows, row)
        assert len(examples) == 1 or pack
        for columns in examples:
            _check_example(rows, row, columns, owner, kind)
        if pack and row < len(rows.ids) - 1:
            assert seq_len - used < MIN_SPACE


def _check_example(rows, row, columns, owner, kind):
    ids, types, maskable = rows.ids[row, columns], rows.token_types[row, columns], rows.maskable[row, columns]
    assert rows.positions[row, columns].tolist() == list(range(len(columns)))
    assert columns.tolist() == list(range(columns[0], columns[-1] + 1))
    assert ids[0] == VOCAB.cls_id
    assert ids[-1] == VOCAB.sep_id
    separators = np.flatnonzero(ids == VOCAB.sep_id)
    assert len(separators) == 1 + types[-1]
    assert len(separators) == 1 or kind == "reference"
    assert types.tolist() == (np.arange(len(ids)) > separators[0]).astype(int).tolist()
    assert np.flatnonzero(~maskable).tolist() == [0, *separators.tolist()]
    assert separators[0] > 1
    assert len(separators) == 1 or separators[1] > separators[0] + 1
    body = ids[maskable]
    assert (np.diff(body) == 1).all()
    assert len(set(owner[body - 5])) == 1  # of one document
    starts = rows.word_starts[row, columns]
    assert starts[1]
    assert not (starts & ~maskable).any()
    assert types[-1] == 0 or starts[separators[0] + 1]


@given(_documents, st.sampled_from([16, 64]), st.booleans(), st.integers(0, 99))
def test_shuffling_moves_documents_and_rows_but_loses_nothing(documents, seq_len, pack, seed):
    block = _block(documents)
    rows = block_rows(block, seq_len, "reference", pack, VOCAB, _bits(seed))
    again = block_rows(block, seq_len, "reference", pack, VOCAB, _bits(seed))
    assert sorted(rows.ids[rows.maskable].tolist()) == block.tokens.tolist()
    assert rows.ids.tobytes() == again.ids.tobytes()


def test_another_key_gives_another_order():
    block = _block([[20] * 30, [5] * 40, [60] * 10])
    tables = {block_rows(block, 32, "reference", True, VOCAB, _bits(seed)).ids.tobytes() for seed in range(5)}
    assert len(tables) == 5


def _plan(documents, seq_len, pack, kind="reference", draw=None):
    block = _block(documents)
    draw = uniform_floats(_bits(11)) if draw is None else draw
    return plan_examples(block, range(len(documents)), seq_len, kind, pack, draw), block


LONG = [[12, 7, 15, 9, 14] * 900]  # 51,300 tokens in sentences of 11 on average


def test_one_example_in_ten_has_a_single_segment():
    plan, _ = _plan(LONG, 128, False)
    single = np.mean([example.second == 0 for example in plan])
    assert len(plan) > 400
    assert single == pytest.approx(0.1, abs=0.045)


def test_one_example_in_twenty_aims_at_a_random_length():
    short = [example.length < 128 for _ in range(4) for example in _plan(LONG, 128, False)[0][:-1]]
    assert np.mean(short) == pytest.approx(0.05, abs=0.025)
    lengths = [e.length for e in _plan(LONG, 128, False)[0][:-1] if e.length < 128]
    assert max(lengths) - min(lengths) > 40


def test_the_first_segment_aims_at_half_and_a_coin_takes_the_sentence_that_crosses():
    plan, block = _plan(LONG, 128, False)
    ends = set(block.sentences.tolist())
    aim = (128 - 3) // 2
    first = [example.first for example in plan if example.second and example.length == 128]
    assert np.mean(first) == pytest.approx(aim, abs=1.5)
    assert np.mean([length >= aim for length in first]) == pytest.approx(0.5, abs=0.08)
    assert max(first) < aim + 15
    assert all(example.start + example.first in ends for example in plan if example.second)


def test_the_draws_decide_as_documented():
    """single, coin, short, length: one set of four an example."""
    single, _ = _plan([[10] * 20], 64, False, draw=iter([0.05, 0.9, 0.9, 0.0] * 99))
    assert [(e.first, e.second) for e in single[:2]] == [(62, 0), (62, 0)]
    under, _ = _plan([[10] * 20], 64, False, draw=iter([0.5, 0.9, 0.9, 0.0] * 99))
    over, _ = _plan([[10] * 20], 64, False, draw=iter([0.5, 0.1, 0.9, 0.0] * 99))
    assert (under[0].first, under[0].second) == (20, 41)  # aim 30: two sentences are 20, three are not below
    assert (over[0].first, over[0].second) == (30, 31)
    short, _ = _plan([[10] * 20], 64, False, draw=iter([0.5, 0.9, 0.01, 0.3] * 99))
    assert (short[0].first, short[0].second) == (10, 20)  # length 23: aim 10, three sentences reach it


def test_what_does_not_fit_goes_on_in_the_next_example():
    plan, _ = _plan([[300]], 64, False, draw=repeat(0.99))
    assert [(e.first, e.second) for e in plan] == [(62, 0)] * 4 + [(52, 0)]


def test_full_sentences_without_packing_ends_at_a_sentence():
    plan, _ = _plan([[30, 20, 40, 100]], 64, False, "full_sentences")
    assert [e.first for e in plan] == [50, 40, 62, 38]
    assert not any(e.second for e in plan)


def test_packed_rows_of_short_documents_are_full():
    plan, block = _plan([[9, 4, 11]] * 400, 128, True)
    rows = fill_rows(block, plan, 128, VOCAB)
    assert (rows.segments > 0).mean() > 0.985
    assert rows.segments.max() >= 4
    loose, _ = _plan([[9, 4, 11]] * 400, 128, False)
    assert loose[-1].row >= 399
