"""Going on after a stop: the rest is what it would have been, and little is read to get there."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.data import stream as stream_module
from electra_ds.data.loader import TrainLoader, initial_state, merge_cursors
from electra_ds.data.manifest import load_manifest
from electra_ds.data.stream import Stream

from .rows import SETTINGS
from .rows import collect as collect_rows

DATA = replace(SETTINGS, seq_len=64)  # an epoch is about 38 steps, and two blocks a lane
BATCH = 48
STEPS = 45
WORLDS = [1, 2, 3, 4, 6, 8, 12, 24]


def collect(shards, steps, world_size=1, state=None):
    return collect_rows(shards, steps, world_size, state, DATA, BATCH)


@pytest.fixture(scope="module")
def straight(shards):
    return collect(shards, STEPS)


@pytest.fixture
def reads(monkeypatch):
    """The records read, as (shard, index), in order."""
    done = []
    read_block = stream_module.read_block

    def counting(path, shard, index, offset):
        done.append((shard.name, index))
        return read_block(path, shard, index, offset)

    monkeypatch.setattr(stream_module, "read_block", counting)
    return done


@given(
    stops=st.lists(st.tuples(st.integers(1, 14), st.sampled_from(WORLDS)), min_size=1, max_size=3),
    last_world=st.sampled_from(WORLDS),
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_stops_and_other_world_sizes_change_nothing(shards, straight, stops, last_world):
    rows, state = [], None
    for steps, world_size in [*stops, (3, last_world)]:
        more, cursors = collect(shards, steps, world_size, state)
        rows += more
        state = cursors[-1]
    assert rows == straight[0][: len(rows)]
    assert torch.equal(state, straight[1][len(rows) - 1])


def test_resume_at_every_step_of_an_epoch_border(shards, straight):
    """Each of the steps around which lanes go on to their second epoch, and to another block."""
    epochs = [cursors[:, 1] for cursors in straight[1]]
    borders = [n for n in range(1, STEPS) if not torch.equal(epochs[n], epochs[n - 1])]
    assert borders, "the run is too short to end an epoch"
    for step in range(min(borders) - 2, min(min(borders) + 3, STEPS - 1)):
        rows, _ = collect(shards, 1, 3, straight[1][step])
        assert rows == straight[0][step + 1 : step + 2]


def test_places_count_what_is_consumed_and_not_what_is_read_ahead(shards):
    loader = TrainLoader(shards, DATA, 3, batch=BATCH, micro_batch=BATCH, rank=0, world_size=1)
    for step, item in zip(range(1, 6), loader, strict=False):
        assert item.cursors[:, 0].tolist() == [step * BATCH // DATA.lanes] * DATA.lanes


def test_resume_reads_one_block_a_lane_however_far_the_run_is(shards, reads):
    stream = Stream(load_manifest(shards), DATA, 3)
    most = stream.records_per_block * DATA.lanes
    costs = []
    for step in (10, 1_000_000):
        state = initial_state(DATA.lanes)
        state[:, 0] = step * BATCH // DATA.lanes
        state[:, 1], state[:, 2], state[:, 3] = step // 40, stream.records_per_block, 5
        loader = TrainLoader(
            shards, DATA, 3, batch=BATCH, micro_batch=BATCH, rank=0, world_size=1, state=state
        )
        reads.clear()
        next(iter(loader))
        assert len(set(reads)) == len(reads) <= most
        costs.append(len(reads))
    assert costs[0] == costs[1]


def test_an_epoch_reads_every_record_once(shards, reads):
    collect(shards, STEPS)
    records = load_manifest(shards).shards[0].records
    first = [reads.count(("shard-000000.tar", index)) for index in range(records)]
    assert set(first) <= {1, 2}  # 2: a lane that is in its second epoch already
    assert 1 in first


def test_a_place_means_the_same_at_another_length(many_shards):
    """The third number counts records: at twice the length a lane goes on with the record after the block."""
    short = Stream(load_manifest(many_shards), DATA, 3)
    long = Stream(load_manifest(many_shards), replace(DATA, seq_len=128), 3)
    assert long.records_per_block > short.records_per_block
    assert (short.lane_records(0, 2) == long.lane_records(0, 2)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state[:4], "has 4 lanes, but data.lanes=8"),
        (
            lambda state: torch.where(torch.arange(8)[:, None] == 3, -1, state),
            "merge the cursors of all ranks",
        ),
        (lambda state: state + torch.tensor([1, 0, 0, 0]) * (torch.arange(8)[:, None] == 7), "incomplete"),
    ],
    ids=["lanes", "unmerged", "torn"],
)
def test_a_place_that_cannot_be_is_refused(shards, straight, change, message):
    with pytest.raises(InputError, match=message):
        collect(shards, 1, state=change(straight[1][4].clone()))


def test_a_place_of_other_shards_is_a_failure(shards, straight):
    state = straight[1][4].clone()
    state[:, 3] = 10_000
    with pytest.raises(RunFailure, match="saved data position"):
        collect(shards, 1, state=state)


def test_merging_takes_the_rank_that_is_furthest_in_each_lane():
    ranks = torch.tensor([[[5, 0, 0, 5], [-1] * 4, [7, 1, 2, 3]], [[6, 1, 0, 0], [4, 0, 0, 4], [6, 1, 2, 2]]])
    expected = [[6, 1, 0, 0], [4, 0, 0, 4], [7, 1, 2, 3]]
    assert merge_cursors(ranks).tolist() == merge_cursors(list(ranks)).tolist() == expected
