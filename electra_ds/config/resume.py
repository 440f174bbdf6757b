"""Which settings a run may change when it goes on."""

from electra_ds.config.loading import flatten
from electra_ds.config.schema import Config
from electra_ds.config.typed import show
from electra_ds.config.units import parse_duration

# Everything that changes neither the model, nor the mathematics, nor the order of the data.
MAY_CHANGE = frozenset(
    (
        "data.workers",
        "train.micro_batch",
        "train.log_every",
        "train.eval_every",
        "train.eval_rows",
        "train.checkpoint_every",
        "train.keep",
        "train.keep_every",
        "train.stop_after",
        "train.max_skipped",
        "train.dist_timeout",
        "train.duration",
    )
)


def refused_changes(old: Config, new: Config) -> list[str]:
    """Return ``"key: old -> new"`` for every difference that a resumed run may not have.

    ``train.steps`` may grow, and so may ``train.duration``; neither may shrink.
    """
    before, after = flatten(old), flatten(new)
    refused = []
    for key, value in after.items():
        if value == before[key]:
            continue
        change = f"{key}: {show(before[key])} -> {show(value)}"
        if key == "train.steps":
            if new.train.steps < old.train.steps:
                refused.append(f"{change} (may only grow)")
        elif key == "train.duration":
            if _shrinks(old.train.duration, new.train.duration):
                refused.append(f"{change} (may only grow)")
        elif key not in MAY_CHANGE:
            refused.append(change)
    return refused


def _shrinks(old: str | None, new: str | None) -> bool:
    if old is None or new is None:
        return False  # in steps against in epochs or tokens: comparable only with the data at hand
    before, after = parse_duration(old), parse_duration(new)
    return before.unit == after.unit and after.amount < before.amount
