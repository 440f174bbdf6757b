"""The order of the data is a pure function of seed, manifest and settings."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.config.errors import InputError
from electra_ds.data.loader import TrainLoader
from electra_ds.data.manifest import load_manifest
from electra_ds.data.stream import LaneReader, Stream

from .rows import BATCH, SETTINGS, collect, digest, global_steps, row_bytes

STEPS = 30


@pytest.fixture(scope="module")
def expected(shards):
    """The steps of one rank, with which all others are compared."""
    return collect(shards, STEPS)


@pytest.mark.parametrize("world_size", [2, 3, 4, 8, 12, 24])
def test_ranks_together_see_the_same_global_batches(shards, expected, world_size):
    rows, cursors = collect(shards, STEPS, world_size)
    assert rows == expected[0]
    assert all(torch.equal(mine, other) for mine, other in zip(cursors, expected[1], strict=True))


def test_more_ranks_than_lanes_and_one_shard(shards, tmp_path):
    """The number of shards does not matter: 24 ranks on 8 lanes of a single shard all get their rows."""
    assert len(load_manifest(shards).shards) == 1
    rows, _ = collect(shards, 3, 24)
    assert all(len(row) == len(rows[0][0]) > 0 for step in rows for row in step)


def test_rows_are_dealt_by_their_number_in_the_run_where_the_batch_changes(shards, expected):
    """16 ranks go on at row 24, which is rank 8's."""
    following = [row for rows in expected[0][1:] for row in rows]
    state = expected[1][0]
    for rank in range(16):
        loader = TrainLoader(
            shards, SETTINGS, 3, batch=16, micro_batch=1, rank=rank, world_size=16, state=state
        )
        mine = [row_bytes(step.micro[0])[0] for step, _ in zip(loader, range(3), strict=False)]
        assert mine == following[(rank - BATCH) % 16 :: 16][:3]


@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_whole_shards_are_dealt_where_there_are_enough(many_shards, world_size):
    assert len(load_manifest(many_shards).shards) >= SETTINGS.lanes
    assert collect(many_shards, STEPS, world_size)[0] == collect(many_shards, STEPS)[0]


def test_a_world_that_divides_the_lanes_reads_a_lane_on_one_rank_only(shards):
    loaders = [
        TrainLoader(shards, SETTINGS, 1, batch=BATCH, micro_batch=1, rank=rank, world_size=4)
        for rank in range(4)
    ]
    read = [set(np.flatnonzero(next(iter(loader)).cursors[:, 0].numpy() >= 0)) for loader in loaders]
    assert sorted(lane for lanes in read for lane in lanes) == list(range(SETTINGS.lanes))


@pytest.mark.parametrize(
    "change",
    [
        {"seq_len": 40},
        {"pack": False},
        {"examples": "full_sentences"},
        {"mask_prob": 0.3},
        {"mask_unit": "whole_word"},
        {"mask_unit": "ngram"},
        {"lanes": 4},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_setting_changes_the_stream(shards, expected, change):
    assert collect(shards, 2, data=replace(SETTINGS, **change))[0] != expected[0][:2]


def test_the_seed_fixes_the_stream_and_another_changes_it(shards, expected):
    assert collect(shards, 5)[0] == expected[0][:5]
    other = {row for step in collect(shards, 5, seed=4)[0] for row in step}
    assert not other & {row for step in expected[0][:5] for row in step}


def _epoch_of_lane(stream: Stream, lane: int, epoch: int) -> list[np.ndarray]:
    """All packed rows that a lane gives in an epoch."""
    reader = LaneReader(stream, lane, (0, epoch, 0, 0))
    rows = []
    while True:
        row = reader.take(len(rows))
        if reader.place[1] != epoch:
            return rows
        rows.append(row)


@pytest.mark.parametrize("folder", ["shards", "many_shards"])
@pytest.mark.parametrize("pack", [True, False])
def test_every_token_is_seen_once_an_epoch_and_epochs_differ(folder, pack, request, encoder):
    manifest = load_manifest(request.getfixturevalue(folder))
    stream = Stream(manifest, replace(SETTINGS, pack=pack), 3)
    written = Counter()
    for record in range(int(stream._first[-1])):
        written.update(stream._read(record).tokens.tolist())
    orders, draws, dealt = [], [], []
    for epoch in (0, 1):
        rows = [row for lane in range(SETTINGS.lanes) for row in _epoch_of_lane(stream, lane, epoch)]
        ids = np.stack(rows)[:, : SETTINGS.seq_len]
        seen = Counter(ids.ravel().tolist())
        for special in encoder.vocab.control_ids:
            del seen[special]
        assert seen == written
        orders.append(ids.tobytes())
        draws.append({row[-1 - stream.slots : -1].tobytes() for row in rows})
        dealt.append({frozenset(stream.lane_records(epoch, lane).tolist()) for lane in range(SETTINGS.lanes)})
    assert orders[0] != orders[1]
    assert not draws[0] & draws[1]
    assert not dealt[0] & dealt[1]  # no lane reads in the second epoch what one read in the first
    assert sum(written.values()) == manifest.tokens


@given(
    units=st.integers(1, 40),
    lanes=st.integers(1, 20),
    whole_shards=st.booleans(),
    epochs=st.integers(1, 5),
    seed=st.integers(-3, 2**63),
)
def test_units_are_dealt_once_an_epoch_and_lanes_stay_level(units, lanes, whole_shards, epochs, seed):
    """Records 0 to n - 1, in shards of one to three records or in one shard."""
    stream = Stream.__new__(Stream)
    sizes = [1 + unit % 3 for unit in range(units)] if whole_shards else [units]
    stream.seed, stream.lanes = seed, lanes
    stream._whole_shards = len(sizes) >= lanes
    stream._first = np.cumsum([0, *sizes])
    stream.manifest = type("M", (), {"shards": [type("S", (), {"records": size}) for size in sizes]})
    stream._units = len(sizes) if stream._whole_shards else sum(sizes)
    stream._unit_order = stream._permute_units
    dealt = np.zeros(lanes, dtype=int)
    for epoch in range(epochs):
        parts = [stream.lane_records(epoch, lane) for lane in range(lanes)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(sum(sizes)))
        if not stream._whole_shards:
            dealt += [len(part) for part in parts]
            assert dealt.max() - dealt.min() <= 1


def test_every_row_of_a_long_run_is_new(shards):
    """Positions and draws are keyed by epoch, lane and block: no two rows carry the same numbers."""
    masks = [row[-4 * 5 :] for rows, _ in global_steps(shards, 150) for row in rows]
    assert len(set(masks)) == len(masks)


_SCRIPT = """
import sys
from pathlib import Path
from dataclasses import replace
sys.path.insert(0, {tests!r})
from electra_ds.data.loader import TrainLoader
from tests.data.rows import BATCH, SETTINGS, digest, row_bytes

def main():
    data = replace(SETTINGS, workers=1)
    loader = TrainLoader({shards!r}, data, 3, batch=BATCH, micro_batch=BATCH, rank=0, world_size=1)
    steps = iter(loader)
    print(digest([row_bytes(next(steps).micro[0]) for _ in range(5)]), flush=True)
    globals()["alive"] = loader, steps
    sys.exit(75)

if __name__ == "__main__":
    main()
"""


def test_hash_seed_and_loader_process_change_nothing_and_the_exit_is_quick(shards, expected, tmp_path):
    """The script leaves with its loader alive: it must not wait for a process that ignores SIGTERM."""
    root = Path(__file__).parents[2]
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(tests=str(root), shards=str(shards)))
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, timeout=120, env=environment, check=False
    )
    assert result.returncode == 75
    assert result.stdout.split() == [digest(expected[0][:5])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 10, "world_size": 4}, r"train.batch=10 .* 4 ranks; .* fit: 1, 2, 5, 10"),
        ({"batch": 0}, "train.batch=0"),
        ({"batch": 24, "micro_batch": 5, "world_size": 2}, r"micro_batch=5 .* these do: 1, 2, 3, 4, 6, 12"),
        ({"rank": 2, "world_size": 2}, "rank 2"),
        ({"data": replace(SETTINGS, seq_len=7)}, "data.seq_len=7: must be between 8"),
        ({"data": replace(SETTINGS, lanes=0)}, "data.lanes=0"),
        ({"data": replace(SETTINGS, mask_prob=0.0)}, "data.mask_prob=0.0"),
        ({"data": replace(SETTINGS, workers=-1)}, "data.workers=-1"),
    ],
)
def test_impossible_settings_are_refused(shards, arguments, message):
    arguments = {"data": SETTINGS, "batch": 24, "micro_batch": 1, "rank": 0, "world_size": 1, **arguments}
    with pytest.raises(InputError, match=message):
        TrainLoader(shards, arguments.pop("data"), 1, **arguments)


def test_shortest_rows_work(shards):
    data = replace(SETTINGS, seq_len=8, mask_unit="ngram")
    loader = TrainLoader(shards, data, 1, batch=BATCH, micro_batch=BATCH, rank=0, world_size=1)
    batch = next(iter(loader)).micro[0]
    assert batch.masked_positions.shape[1] <= 6
    assert (batch.masked_weights.sum(1) >= 1).all()
    assert row_bytes(batch)
