"""Learning-rate schedules: pure functions of the number of optimizer updates done.

Step k is the k-th update, from 0. A skipped step is no update, so it moves no schedule.
"""

from electra_ds.config.schema import OptimizerConfig


def learning_rate(optimizer: OptimizerConfig, step: int, steps: int) -> float:
    """The rate of update ``step`` (0-based) of a run of ``steps`` updates.

    Warm-up is linear and its first update has lr / warmup_steps, the update ``warmup_steps - 1`` the
    full rate. ``linear`` is multiplied with the share of the run that is left (Clark et al. 2020,
    Appendix A), so the last update still has lr / steps and none has 0. ``wsd`` (warm-up, stable, decay)
    falls over the last ``decay_share`` of the run. ``constant`` stays.
    """
    warmup = min(1.0, (step + 1) / optimizer.warmup_steps) if optimizer.warmup_steps else 1.0
    left = max(steps - step, 0)
    if optimizer.schedule == "linear":
        shape = left / steps
    elif optimizer.schedule == "wsd":
        shape = min(1.0, left / max(1.0, optimizer.decay_share * steps))
    else:
        shape = 1.0
    return optimizer.lr * warmup * shape
