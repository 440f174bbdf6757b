"""Batches for training and evaluation.

The loader takes rows from lanes and cuts global batches out of them. Loader processes each own some of the
rank's lanes and send, for every step, their rows of it; the main process puts them in order, so the number of
processes changes nothing but speed. Positions count rows consumed, never rows fetched ahead.
"""

import atexit
import math
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.config.schema import DataConfig
from electra_ds.data.batch import Batch, empty_rows, row_width, unpack_rows
from electra_ds.data.manifest import Manifest, load_manifest
from electra_ds.data.stream import LaneReader, Stream, check_stream_settings

# (lanes, 4) int64: rows consumed, epoch, records of the lane's epoch before the block, row of the block
StreamState = Tensor
_STEPS_AHEAD = 4  # steps that a loader process may be ahead


def initial_state(lanes: int) -> StreamState:
    """The place of every lane at the beginning of a run."""
    return torch.zeros(lanes, 4, dtype=torch.int64)


def merge_cursors(cursors: Tensor | Sequence[Tensor]) -> StreamState:
    """Merge the cursors (lanes, 4) of all ranks (a list, or stacked): of each lane the place furthest on."""
    stacked = cursors if isinstance(cursors, Tensor) else torch.stack(list(cursors))
    furthest = stacked[:, :, 0].argmax(dim=0)  # (lanes,)
    return stacked[furthest, torch.arange(stacked.shape[1], device=stacked.device)]


@dataclass
class StepBatches:
    """A rank's share of one global step."""

    micro: list[Batch]
    cursors: Tensor  # (lanes, 4) int64, places AFTER this step; rows of -1 for lanes not read on this rank


@dataclass(frozen=True)
class _Share:
    """Which rows of the run a rank takes. Steps are numbered from where this loader starts."""

    lanes: int
    batch: int
    rank: int
    world_size: int
    first_row: int

    def rows(self, step: int) -> np.ndarray:
        """Numbers of this rank's rows of a step, increasing."""
        begin = self.first_row + step * self.batch
        begin += (self.rank - begin) % self.world_size
        return np.arange(begin, begin + self.batch, self.world_size)

    def rank_lanes(self) -> list[int]:
        """The lanes that this rank ever reads."""
        common = math.gcd(self.world_size, self.lanes)
        return list(range(self.rank % common, self.lanes, common))


class _LaneGroup(IterableDataset):
    """For each step without end, the rows that lie in some lanes, and where those lanes then stand.

    Yields (rows (n, W) int32, places (lanes of the group, 4) int64), or the message of a failure.
    """

    def __init__(
        self, stream_arguments: tuple[Manifest, DataConfig, int], share: _Share, state: np.ndarray
    ) -> None:
        self._stream_arguments = stream_arguments
        self._share = share
        self._state = state
        self._groups = 1

    def split(self, groups: int) -> "_LaneGroup":
        """Let each of ``groups`` loader processes yield its own lanes only."""
        self._groups = groups
        return self

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        lanes = self._share.rank_lanes()[worker.id if worker else 0 :: self._groups]
        try:
            yield from self._steps(lanes)
        except (
            RunFailure,
            InputError,
        ) as error:  # sent as a value: a worker's exception would carry its traceback
            yield str(error)

    def _steps(self, lanes: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        stream = Stream(*self._stream_arguments)
        readers = {lane: LaneReader(stream, lane, tuple(self._state[lane].tolist())) for lane in lanes}
        width = row_width(stream.data.seq_len, stream.slots)
        step = 0
        while True:
            rows = self._share.rows(step)
            mine = [
                (reader, row // stream.lanes)
                for row in rows.tolist()
                if (reader := readers.get(row % stream.lanes))
            ]
            packed = np.empty((len(mine), width), dtype=np.int32)
            for index, (reader, number) in enumerate(mine):
                packed[index] = reader.take(number)
            places = np.array([reader.place for reader in readers.values()], dtype=np.int64)
            yield torch.from_numpy(packed), torch.from_numpy(places)
            step += 1


def _ignore_signals(worker: int) -> None:
    """A signal to the whole job must not kill the loader before the trainer has saved."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(name, signal.SIG_IGN)


def _stop_processes(source: Callable[[], Any]) -> None:
    """Stop the loader processes of a DataLoader's iterator, if it still exists and has any."""
    stop = getattr(source(), "_shutdown_workers", None)
    if stop is not None:
        stop()


class TrainLoader:
    """Iterate over the global steps of a run without end: one :class:`StepBatches` each.

    Args:
        shards: a finished shard folder.
        data: stream settings; with ``workers`` > 0 that many processes read ahead.
        seed: the run's seed.
        batch: rows of the global batch, B.
        micro_batch: rows of a micro-batch on a rank.
        rank, world_size: this process's share.
        state: the merged cursors of the last step done, or None for a new run.
        pin: put batches in page-locked memory.

    Raises InputError if the shards are not whole, or B cannot be dealt to the ranks, or ``state`` does not
    fit.
    """

    def __init__(
        self,
        shards: Path | str,
        data: DataConfig,
        seed: int,
        *,
        batch: int,
        micro_batch: int,
        rank: int,
        world_size: int,
        state: StreamState | None = None,
        pin: bool = False,
    ) -> None:
        check_stream_settings(data)
        _check_batch(batch, micro_batch, rank, world_size)
        self.manifest = load_manifest(shards)
        self.data = data
        self.pin = pin
        self.micro_batch = micro_batch
        places = (initial_state(data.lanes) if state is None else state).cpu().numpy().astype(np.int64)
        first_row = _first_row(places, data.lanes)
        self._share = _Share(data.lanes, batch, rank, world_size, first_row)
        self._group = _LaneGroup((self.manifest, data, seed), self._share, places)
        self._workers = min(data.workers, len(self._share.rank_lanes()))
        self._source: Iterator[Any] | None = None

    def _parts(self) -> Iterator[Any]:
        if not self._workers:
            return iter(self._group)
        loader = DataLoader(
            self._group.split(self._workers),
            batch_size=None,
            num_workers=self._workers,
            multiprocessing_context="spawn",  # a fork after threads (tokenizers, BLAS) may hang for ever
            prefetch_factor=_STEPS_AHEAD,
            worker_init_fn=_ignore_signals,
            generator=torch.Generator(),  # leaves the global generator alone
        )
        source = iter(loader)
        # At exit multiprocessing would send SIGTERM, which the loader processes ignore, and wait for ever.
        atexit.register(_stop_processes, weakref.ref(source))
        return source

    def __iter__(self) -> Iterator[StepBatches]:
        self.close()
        self._source = self._parts()
        lanes = self._share.rank_lanes()
        groups = max(1, self._workers)
        owner = np.zeros(self._share.lanes, dtype=np.int64)
        for group in range(groups):
            owner[lanes[group::groups]] = group
        step = 0
        while self._source is not None:
            # The DataLoader takes items from its processes in turn: one of each makes a step.
            try:
                parts = [next(self._source) for _ in range(groups)]
            except (RuntimeError, OSError, EOFError) as error:  # what is said of a process that was killed
                raise RunFailure(f"a loader process died: {error}") from None
            row_owner = owner[self._share.rows(step) % self._share.lanes]
            cursors = torch.full((self._share.lanes, 4), -1, dtype=torch.int64)
            packed: np.ndarray | None = None
            for group, part in enumerate(parts):
                if isinstance(part, str):
                    raise RunFailure(part)
                rows, places = part
                if packed is None:
                    packed = np.empty((len(row_owner), rows.shape[1]), dtype=np.int32)
                packed[row_owner == group] = rows.numpy()
                cursors[lanes[group::groups]] = places
            assert packed is not None  # there is at least one group
            yield StepBatches(self._batches(packed), cursors)
            step += 1

    def _batches(self, packed: np.ndarray) -> list[Batch]:
        seq_len = self.data.seq_len
        slots = (packed.shape[1] - 2 * seq_len - 1) // 2
        batches = [
            unpack_rows(packed[begin : begin + self.micro_batch], seq_len, slots)
            for begin in range(0, len(packed), self.micro_batch)
        ]
        return [batch.pin_memory() for batch in batches] if self.pin else batches

    def close(self) -> None:
        """Stop the loader processes."""
        source, self._source = self._source, None
        _stop_processes(lambda: source)


def _check_batch(batch: int, micro_batch: int, rank: int, world_size: int) -> None:
    if not 0 <= rank < world_size:
        raise InputError(f"rank {rank} is not one of the {world_size} ranks")
    if batch < 1 or batch % world_size:
        fitting = ", ".join(str(n) for n in range(1, max(batch, 0) + 1) if batch % n == 0)
        raise InputError(
            f"train.batch={batch} cannot be dealt to {world_size} ranks;"
            f" numbers of ranks that fit: {fitting or 'none'}"
        )
    share = batch // world_size
    if micro_batch < 1 or share % micro_batch:
        fitting = ", ".join(str(n) for n in range(1, share + 1) if share % n == 0)
        raise InputError(
            f"train.micro_batch={micro_batch} does not divide the {share} rows of a rank; these do: {fitting}"
        )


def _first_row(places: np.ndarray, lanes: int) -> int:
    """Return how many rows of the run are consumed; raise InputError if the places cannot be of one
    moment.
    """
    if places.shape != (lanes, 4):
        raise InputError(
            f"the saved data position has {len(places)} lanes, but data.lanes={lanes};"
            " it cannot change within a run"
        )
    first = int(places[:, 0].sum())
    expected = (first - np.arange(lanes) + lanes - 1) // lanes
    if (places < 0).any() or (places[:, 0] != expected).any():
        raise InputError("the saved data position is incomplete: merge the cursors of all ranks of one step")
    return first


def eval_batches(
    shards: Path | str,
    data: DataConfig,
    seed: int,
    *,
    micro_batch: int,
    rank: int,
    world_size: int,
    max_rows: int,
) -> Iterator[Batch]:
    """Yield this rank's batches of the first ``max_rows`` rows of held-out shards, the same at every call.

    Row i goes to rank i % world_size. All ranks yield the same number of batches of ``micro_batch`` rows;
    where the rows run out, empty rows (all padding, no masked position) fill up.
    """
    if micro_batch < 1 or max_rows < 1 or not 0 <= rank < world_size:
        raise InputError(
            f"evaluation needs rows: micro_batch={micro_batch}, eval_rows={max_rows}, rank={rank}"
        )
    stream = Stream(load_manifest(shards), data, seed)
    return _eval_batches(stream, micro_batch, rank, world_size, max_rows)


def _eval_batches(
    stream: Stream, micro_batch: int, rank: int, world_size: int, max_rows: int
) -> Iterator[Batch]:
    seq_len, slots = stream.data.seq_len, stream.slots
    records = sum(shard.records for shard in stream.manifest.shards)
    round_rows = micro_batch * world_size
    pending = np.empty((0, row_width(seq_len, slots)), dtype=np.int32)
    left = max_rows
    for begin in range(0, records, stream.records_per_block):
        numbers = range(begin, min(begin + stream.records_per_block, records))
        rows = stream.rows(numbers, 0, 0, begin, shuffle=False)[:left]
        left -= len(rows)
        pending = np.concatenate([pending, rows])
        while len(pending) >= round_rows:
            yield unpack_rows(pending[rank:round_rows:world_size], seq_len, slots)
            pending = pending[round_rows:]
        if not left:
            break
    if len(pending):
        mine = pending[rank::world_size]
        filling = empty_rows(micro_batch - len(mine), seq_len, slots, stream.manifest.vocab.pad_id)
        yield unpack_rows(np.concatenate([mine, filling]), seq_len, slots)
