"""Batches, loader processes, evaluation rows."""

import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.data.batch import empty_rows, unpack_rows
from electra_ds.data.examples import fill_rows, plan_examples
from electra_ds.data.loader import TrainLoader, eval_batches
from electra_ds.data.records import Block

from .rows import BATCH, SETTINGS, collect, row_bytes


def _steps(loader, number):
    return [(row_bytes(step.micro[0]), step.cursors) for step, _ in zip(loader, range(number), strict=False)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_loader_processes_change_nothing_and_a_killed_one_is_a_failure(shards):
    """Three processes on one of two ranks, started where a run without processes stopped."""
    share = {"batch": BATCH, "micro_batch": BATCH // 2, "rank": 1, "world_size": 2}
    _, cursors = collect(shards, 4, 2)
    plain = TrainLoader(shards, SETTINGS, 3, **share, state=cursors[-1])
    before = torch.get_rng_state()
    loader = TrainLoader(shards, replace(SETTINGS, workers=3), 3, **share, state=cursors[-1])
    try:
        for (rows, places), (others, other_places) in zip(_steps(plain, 8), _steps(loader, 8), strict=True):
            assert rows == others
            assert torch.equal(places, other_places)
        assert torch.equal(torch.get_rng_state(), before)
        steps = iter(loader)
        next(steps)
        for process in loader._source._workers[:1]:
            os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(RunFailure, match="loader process died"):
            for _ in range(50):
                next(steps)
    finally:
        loader.close()


def test_damage_found_by_a_lane_is_a_failure_that_names_the_shard(shards, tmp_path):
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    shard = copy / "shard-000000.tar"
    data = bytearray(shard.read_bytes())
    for at in range(600, len(data), 2000):
        data[at] ^= 1
    shard.write_bytes(data)
    with pytest.raises(RunFailure, match=r"shard-000000\.tar: record \d+ is damaged.*--check"):
        collect(copy, 50)


def test_a_shard_that_shrinks_in_mid_run_is_a_failure(shards, tmp_path):
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    loader = TrainLoader(copy, SETTINGS, 3, batch=BATCH, micro_batch=BATCH, rank=0, world_size=1)
    steps = iter(loader)
    next(steps)
    (copy / "shard-000000.tar").unlink()
    with pytest.raises(RunFailure, match=r"shard-000000\.tar: cannot be read"):
        for _ in range(50):
            next(steps)


def test_micro_batches_cut_the_rows_of_a_rank_in_order(shards):
    def rows(micro_batch):
        loader = TrainLoader(shards, SETTINGS, 3, batch=BATCH, micro_batch=micro_batch, rank=1, world_size=2)
        step = next(iter(loader))
        assert len(step.micro) == BATCH // 2 // micro_batch
        return [row for batch in step.micro for row in row_bytes(batch)]

    assert rows(1) == rows(4) == rows(12)


@pytest.mark.parametrize("pack", [True, False])
def test_fields_of_a_batch_agree(shards, encoder, pack):
    loader = TrainLoader(
        shards, replace(SETTINGS, pack=pack), 3, batch=BATCH, micro_batch=BATCH, rank=0, world_size=1
    )
    for step, _ in zip(loader, range(10), strict=False):
        (batch,) = step.micro
        vocab, ids, segments = encoder.vocab, batch.input_ids, batch.segments
        assert (ids[segments == 0] == vocab.pad_id).all()
        assert not (ids == vocab.mask_id).any()
        assert batch.num_tokens == int((segments > 0).sum()) == int((ids != vocab.pad_id).sum())
        assert batch.num_masked == int(batch.masked_weights.sum())
        used = batch.masked_weights > 0
        assert (batch.masked_positions[~used] == 0).all()
        picked = ids.gather(1, batch.masked_positions)[used]
        assert not torch.isin(picked, torch.tensor(vocab.control_ids)).any()
        assert ((batch.draws >= 0) & (batch.draws < 1)).all()
        assert (batch.position_ids[ids == vocab.cls_id] == 0).all()
        assert int((batch.position_ids == 0)[segments > 0].sum()) == int((ids == vocab.cls_id).sum())
        assert batch.needs_mask == bool((segments != 1).any())
        assert batch.input_ids.dtype == batch.segments.dtype == batch.masked_positions.dtype == torch.int64
        assert batch.masked_weights.dtype == batch.draws.dtype == torch.float32


def _one_document(encoder, tokens, seq_len):
    block = Block(
        tokens=np.full(tokens, 10, dtype=np.uint16),
        sentences=np.array([tokens], dtype=np.int32),
        documents=np.array([1], dtype=np.int32),
        word_starts=np.ones(tokens, dtype=bool),
    )
    plan = plan_examples(block, [0], seq_len, "full_sentences", True, iter([]))
    return fill_rows(block, plan, seq_len, encoder.vocab)


@pytest.mark.parametrize(("tokens", "needs_mask"), [(30, False), (29, True), (60, False), (61, True)])
def test_no_attention_mask_is_needed_where_every_row_is_one_full_example(encoder, tokens, needs_mask):
    from electra_ds.data.batch import pack_rows

    rows = _one_document(encoder, tokens, 32)
    nothing = np.zeros((len(rows.ids), 3), dtype=np.int32)
    packed = pack_rows(rows, nothing, nothing[:, 0], nothing.astype(np.float32))
    assert unpack_rows(packed, 32, 3).needs_mask is needs_mask


def test_empty_rows_are_padding(encoder):
    batch = unpack_rows(empty_rows(2, 16, 3, encoder.vocab.pad_id), 16, 3)
    assert (batch.input_ids == encoder.vocab.pad_id).all()
    assert batch.num_tokens == batch.num_masked == 0
    assert batch.needs_mask
    assert not batch.masked_weights.any()


def test_to_keeps_everything(encoder):
    batch = unpack_rows(empty_rows(2, 16, 3, encoder.vocab.pad_id), 16, 3)
    assert row_bytes(batch.to("cpu")) == row_bytes(batch)
    assert batch.to("meta").input_ids.device.type == "meta"


def _evaluation(shards, world_size, max_rows, micro_batch=4):
    ranks = [
        list(
            eval_batches(
                shards,
                SETTINGS,
                3,
                micro_batch=micro_batch,
                rank=rank,
                world_size=world_size,
                max_rows=max_rows,
            )
        )
        for rank in range(world_size)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    assert all(len(batch.input_ids) == micro_batch for batches in ranks for batch in batches)
    rows = []
    for batches in zip(*ranks, strict=True):
        rows += [row for rank in zip(*map(row_bytes, batches), strict=True) for row in rank]
    tokens = sum(batch.num_tokens for batches in ranks for batch in batches)
    return rows, tokens, ranks


@pytest.mark.parametrize("max_rows", [1, 7, 12, 13, 100_000])
def test_evaluation_rows_do_not_depend_on_the_number_of_ranks(shards, max_rows):
    heldout = shards / "heldout"
    rows, tokens, _ = _evaluation(heldout, 1, max_rows)
    real = min(max_rows, next(n for n in range(len(rows), 0, -1) if any(rows[n - 1][: 8 * 32])))
    for world_size in (1, 2, 3, 5):
        others, other_tokens, ranks = _evaluation(heldout, world_size, max_rows)
        assert others[:real] == rows[:real]
        assert other_tokens == tokens
        if max_rows == 1 and world_size > 1:
            empty = ranks[1][0]
            assert empty.num_tokens == empty.num_masked == 0
            assert not empty.masked_weights.any()


def test_evaluation_uses_every_held_out_token(shards):
    from electra_ds.data.manifest import load_manifest

    batches = eval_batches(
        shards / "heldout", SETTINGS, 3, micro_batch=8, rank=0, world_size=1, max_rows=10**6
    )
    special = torch.tensor([0, 2, 3, 4])  # [PAD] [CLS] [SEP] [MASK]
    body = sum(int((~torch.isin(batch.input_ids, special)).sum()) for batch in batches)
    assert body == load_manifest(shards / "heldout").tokens


@pytest.mark.parametrize("change", [{"max_rows": 0}, {"micro_batch": 0}, {"rank": 3}])
def test_evaluation_needs_rows(shards, change):
    arguments = {"micro_batch": 4, "rank": 0, "world_size": 1, "max_rows": 8, **change}
    with pytest.raises(InputError, match="evaluation"):
        eval_batches(shards, SETTINGS, 3, **arguments)
