"""The training loop. Everything it needs is made in ``main.py`` and held by :class:`Run`."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from electra_ds.config.derived import BatchPlan, checkpoint_interval
from electra_ds.config.errors import EXIT_DONE, EXIT_STOPPED, RunFailure
from electra_ds.config.schema import Config
from electra_ds.data.loader import StepBatches, TrainLoader, merge_cursors
from electra_ds.training.checkpoint import rotate, save_checkpoint
from electra_ds.training.distributed import Ranks
from electra_ds.training.engine import StepResult, TrainingEngine
from electra_ds.training.meters import Stopwatch, Window
from electra_ds.training.reporter import Reporter
from electra_ds.training.stopping import StopWatch


@dataclass
class Progress:
    """Where the run is; saved with every checkpoint."""

    step: int = 0  # optimizer updates done
    real_tokens: int = 0
    skipped: int = 0
    cursors: Tensor | None = None  # (lanes, 4) of the data, all ranks merged
    window: Window = field(default_factory=Window)


@dataclass
class Run:
    """The parts of a run."""

    config: Config
    steps: int
    plan: BatchPlan
    ranks: Ranks
    engine: TrainingEngine
    loader: TrainLoader
    held_out: Callable[[], Any] | None  # makes an iterator of evaluation batches
    reporter: Reporter
    folder: Path
    progress: Progress


def train(run: Run) -> int:
    """Train to the last step, or until asked to stop; returns the exit code. All ranks call it."""
    settings, progress, ranks = run.config.train, run.progress, run.ranks
    skipped_in_row = 0
    last_saved, last_saved_at = progress.step, time.monotonic()
    save_steps, save_seconds = checkpoint_interval(run.config)
    watch, timer = StopWatch(), Stopwatch()
    with watch:
        for batches in run.loader:
            progress.window.waited += (waited := timer.lap())
            time_is_up = save_seconds is not None and time.monotonic() - last_saved_at >= save_seconds
            num_masked, num_tokens, stop, save_now = ranks.sum_integers(
                sum(batch.num_masked for batch in batches.micro),
                sum(batch.num_tokens for batch in batches.micro),
                watch.asked(),
                ranks.is_first and time_is_up,
            )
            if stop:  # this batch was not used: the cursors are still those of the step before
                return _stop(run, watch, last_saved)
            result = run.engine.step(batches.micro, progress.step, num_masked, num_tokens)
            _advance(progress, result, batches, num_tokens)
            skipped_in_row = 0 if result.applied else skipped_in_row + 1
            if skipped_in_row:
                _report_skip(run, result, skipped_in_row)
            progress.window.seconds += waited + timer.lap()
            step, done = progress.step, progress.step == run.steps
            if result.applied and (step % settings.log_every == 0 or done):
                run.reporter.log_step(run.engine, progress, result)
            if result.applied and (done or (settings.eval_every and step % settings.eval_every == 0)):
                evaluate(run)
            stop_here = settings.stop_after is not None and step >= settings.stop_after and not done
            if done or stop_here or save_now or (result.applied and save_steps and step % save_steps == 0):
                if last_saved != step:
                    save(run)
                last_saved, last_saved_at = step, time.monotonic()
            if done:
                run.reporter.finished(progress)
                return EXIT_DONE
            if stop_here:
                run.reporter.stopped(progress, f"train.stop_after={settings.stop_after}")
                return EXIT_STOPPED
            run.reporter.show_progress(step)
            timer.lap()  # evaluation and checkpoints are no part of a step's time
    raise RunFailure("the data ended before the last step")  # a training stream has no end


def _advance(progress: Progress, result: StepResult, batches: StepBatches, num_tokens: int) -> None:
    """Count a step. A skipped one has used its batch, but is no update."""
    progress.cursors = batches.cursors
    progress.real_tokens += num_tokens
    if result.applied:
        progress.step += 1
        progress.window.add(result.sums, num_tokens)
    else:
        progress.skipped += 1
        progress.window.skipped += 1


def _report_skip(run: Run, result: StepResult, in_row: int) -> None:
    tags = run.engine.model.tags(Window(result.sums).reduced(run.ranks))
    wrong = sorted(tag for tag, value in tags.items() if not math.isfinite(value)) or ["gradients only"]
    at = f"step {run.progress.step + 1}: gradient norm {result.grad_norm}, not finite: {', '.join(wrong)}"
    if in_row >= run.config.train.max_skipped:
        raise RunFailure(
            f"{at}; {in_row} steps in a row were skipped, so the run stops. Its newest checkpoint is whole:"
            f" lower optimizer.lr or raise optimizer.warmup_steps, and start from it in another --output"
        )
    run.reporter.warn(f"{at}; step skipped ({in_row} in a row)")


def _stop(run: Run, watch: StopWatch, last_saved: int) -> int:
    reason = next((text for text in run.ranks.gather(watch.reason) if text), "")
    if run.progress.step != last_saved:
        save(run)
    run.reporter.stopped(run.progress, reason)
    return EXIT_STOPPED


def evaluate(run: Run) -> None:
    """Measure on the held-out shards, if there are any."""
    if run.held_out is None:
        return
    window = Window(run.engine.evaluate(run.held_out(), run.progress.step))
    tags = run.engine.model.tags(window.reduced(run.ranks))
    run.reporter.log_evaluation(run.progress.step, tags)


def save(run: Run) -> None:
    """Write a checkpoint of this moment. All ranks call it."""
    progress = run.progress
    if progress.cursors is None:
        return  # nothing was trained yet
    cursors = merge_cursors(run.ranks.gather(progress.cursors))
    client_state = {
        "step": progress.step,
        "real_tokens": progress.real_tokens,
        "skipped": progress.skipped,
        "cursors": cursors,
        "window": progress.window.state(run.ranks),
        **run.engine.state(),
    }
    save_checkpoint(
        run.engine.engine, run.ranks, run.folder, progress.step, client_state, run.engine.zero_stage
    )
    if run.ranks.is_first:
        rotate(run.folder, run.config.train.keep, run.config.train.keep_every)
    run.ranks.barrier()
