"""What the tests of the stream and the loader compare: rows as bytes, steps of simulated ranks."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from electra_ds.config.schema import DataConfig
from electra_ds.data.batch import Batch
from electra_ds.data.loader import TrainLoader, merge_cursors

BATCH = 24
SETTINGS = DataConfig(seq_len=32, lanes=8, workers=0)
_TENSORS = (
    "input_ids",
    "segments",
    "position_ids",
    "token_type_ids",
    "masked_positions",
    "masked_weights",
    "draws",
)


def row_bytes(batch: Batch) -> list[bytes]:
    """Every number of every row."""
    tensors = [getattr(batch, name) for name in _TENSORS]
    return [b"".join(t[row].numpy().tobytes() for t in tensors) for row in range(len(batch.input_ids))]


def global_steps(
    shards: Path,
    steps: int,
    world_size: int = 1,
    state: Tensor | None = None,
    data: DataConfig = SETTINGS,
    batch: int = BATCH,
    seed: int = 3,
) -> Iterator[tuple[list[bytes], Tensor]]:
    """Simulate all ranks in one process: yields (rows of the global batch in order, merged cursors)."""
    loaders = [
        TrainLoader(
            shards,
            data,
            seed,
            batch=batch,
            micro_batch=1 if rank % 2 else batch // world_size,
            rank=rank,
            world_size=world_size,
            state=state,
        )
        for rank in range(world_size)
    ]
    iterators = [iter(loader) for loader in loaders]
    try:
        for _ in range(steps):
            rows: list[bytes] = [b""] * batch
            cursors = []
            for rank, iterator in enumerate(iterators):
                step = next(iterator)
                rows[rank::world_size] = [row for micro in step.micro for row in row_bytes(micro)]
                cursors.append(step.cursors)
            yield rows, merge_cursors(cursors)
    finally:
        for loader in loaders:
            loader.close()


def digest(steps: Sequence[list[bytes]]) -> str:
    """One short name for the rows of some steps."""
    return hashlib.sha256(b"".join(row for rows in steps for row in rows)).hexdigest()


def collect(*args, **kwargs) -> tuple[list[list[bytes]], list[Tensor]]:
    """The rows, and the cursors, of all steps."""
    rows, cursors = zip(*global_steps(*args, **kwargs), strict=True)
    return list(rows), list(cursors)


def token_ids(row: bytes, seq_len: int) -> Tensor:
    """The ids (L,) of a row."""
    return torch.frombuffer(bytearray(row[: 8 * seq_len]), dtype=torch.int64)
