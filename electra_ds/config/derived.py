"""Numbers that follow from the configuration: the split of the batch and the length of the run."""

import math
from dataclasses import dataclass

from electra_ds.config.errors import InputError
from electra_ds.config.schema import Config
from electra_ds.config.units import parse_duration, parse_minutes

# With micro_batch: auto, a rank computes at most this many tokens at once. By the usual estimate of 34 bytes
# x hidden size for a token in a layer (16-bit, attention scores not kept) ELECTRA-large needs 14 GB for them.
AUTO_MICRO_BATCH_TOKENS = 16_384


@dataclass(frozen=True)
class BatchPlan:
    """How the global batch is split: batch = micro_batch x accumulation x world_size, in rows."""

    batch: int
    micro_batch: int
    accumulation: int
    world_size: int

    @property
    def equation(self) -> str:
        """The split as people read it: ``256 = 8 per rank × 4 accumulation × 8 ranks``."""
        ranks = "rank" if self.world_size == 1 else "ranks"
        return (
            f"{self.batch} = {self.micro_batch} per rank × {self.accumulation} accumulation × "
            f"{self.world_size} {ranks}"
        )


def solve_batch(config: Config, world_size: int) -> BatchPlan:
    """Split ``train.batch`` over ``world_size`` ranks, exactly.

    The global batch is never changed: a world size that does not divide it, or a ``train.micro_batch``
    that does not divide a rank's share, is an :class:`InputError` listing the values that do.
    """
    batch, asked = config.train.batch, config.train.micro_batch
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, not {world_size}")
    share, rest = divmod(batch, world_size)
    if rest or share == 0:
        below, above = share * world_size, (share + 1) * world_size
        batches = f"{below} or {above}" if below else f"{above}"
        raise InputError(
            f"train.batch={batch} cannot be dealt evenly to {world_size} ranks: use a number of ranks that "
            f"divides it ({_listed(_divisors(batch))}), or train.batch={batches}"
        )
    if asked == "auto":
        most = max(1, AUTO_MICRO_BATCH_TOKENS // config.data.seq_len)
        micro_batch = max(rows for rows in _divisors(share) if rows <= most)
    elif share % asked:
        raise InputError(
            f"train.micro_batch={asked} does not divide the {share} rows that each of {world_size} ranks has "
            f"of train.batch={batch}: use train.micro_batch=auto or one of {_listed(_divisors(share))}"
        )
    else:
        micro_batch = asked
    return BatchPlan(batch, micro_batch, share // micro_batch, world_size)


def _divisors(number: int) -> list[int]:
    small = [value for value in range(1, math.isqrt(number) + 1) if number % value == 0]
    return sorted({*small, *(number // value for value in small)})


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def total_steps(config: Config, tokens_per_epoch: int) -> int:
    """Return the number of optimizer updates of the whole run.

    ``train.duration`` wins over ``train.steps``. Epochs and tokens are turned into steps by the nominal
    size of a batch, ``train.batch * data.seq_len`` tokens, and rounded up.
    """
    if config.train.duration is None:
        return config.train.steps
    duration = parse_duration(config.train.duration)
    if duration.unit == "ba":
        return int(duration.amount)
    tokens = duration.amount * (tokens_per_epoch if duration.unit == "ep" else 1)
    return max(1, math.ceil(tokens / (config.train.batch * config.data.seq_len)))


def checkpoint_interval(config: Config) -> tuple[int | None, float | None]:
    """Return ``train.checkpoint_every`` as (steps, None) or (None, seconds)."""
    every = config.train.checkpoint_every
    return (None, parse_minutes(every)) if isinstance(every, str) else (every, None)
