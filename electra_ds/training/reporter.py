"""What people see of a run: log lines, the progress bar, alarms, metrics, status.json.

Every rank has a reporter, because the sums behind a log line are collective; only rank 0's writes.
"""

import logging
import os
import sys
from typing import Any

from electra_ds.config.derived import BatchPlan
from electra_ds.config.errors import EXIT_DONE, EXIT_STOPPED
from electra_ds.config.schema import Config
from electra_ds.data.manifest import Manifest
from electra_ds.training.alarms import Alarms
from electra_ds.training.engine import StepResult, TrainingEngine
from electra_ds.training.meters import Window, memory_gib
from electra_ds.training.monitor import Monitor
from electra_ds.training.run_folder import LOG, RunFolder
from electra_ds.training.schedule import learning_rate

log = logging.getLogger("electra_ds")


class Reporter:
    """Reports on one run.

    Args:
        folder, monitor: of rank 0; None elsewhere.
        flops_per_token: of forward and backward of the joint model.
        peak: FLOP/s of one rank's device.
    """

    def __init__(
        self,
        config: Config,
        steps: int,
        plan: BatchPlan,
        ranks: Any,
        manifest: Manifest,
        *,
        folder: RunFolder | None,
        monitor: Monitor | None,
        flops_per_token: float,
        peak: float,
        start_step: int,
    ) -> None:
        self.config, self.steps, self.plan, self.ranks, self.manifest = config, steps, plan, ranks, manifest
        self._folder, self._monitor = folder, monitor
        self._flops_per_token, self._peak = flops_per_token, peak
        self._alarms = Alarms(config)
        self._bar: Any = None
        self._seconds_per_step = 0.0
        self.pids = process_ids(ranks)
        if folder is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=steps, initial=start_step, unit="step", desc="training", dynamic_ncols=True
            )

    def log_step(self, engine: TrainingEngine, progress: Any, result: StepResult) -> None:
        """Write the log line and the metrics of the window since the last one, and begin the next window."""
        window, step = progress.window, progress.step
        progress.window = Window()
        tags = engine.model.tags(window.reduced(self.ranks))
        epoch = self._epoch(self.ranks.gather(progress.cursors)) if progress.cursors is not None else 0.0
        if self._folder is None:
            return
        seconds = max(window.seconds, 1e-9)
        updates = max(window.steps, 1)
        tokens_per_s = window.tokens / seconds
        self._seconds_per_step = seconds / updates
        values = {
            **tags,
            "optim/lr": learning_rate(self.config.optimizer, step - 1, self.steps),
            "optim/grad_norm": result.grad_norm if result.grad_norm is not None else float("nan"),
            "optim/loss_scale": result.loss_scale,
            "optim/skipped": progress.skipped,
            "perf/tokens_per_s": tokens_per_s,
            "perf/mfu": tokens_per_s * self._flops_per_token / (self._peak * self.ranks.world_size),
            "perf/data_wait": window.waited / seconds,
            "perf/step_ms": 1000 * seconds / updates,
            "perf/memory": memory_gib(self.ranks),
            "progress/real_tokens": progress.real_tokens,
            "progress/epoch": epoch,
        }
        self._write(step, values)
        self._say(_log_line(step, self.steps, values, self._eta(step)))
        for sentence in self._alarms.check(step, values):
            self.warn(sentence)
        self._folder.write_status("running", step, pids=self.pids)

    def _eta(self, step: int) -> float:
        return max(0, self.steps - step) * self._seconds_per_step

    def _epoch(self, cursors: list[Any]) -> float:
        """Mean over lanes of the epochs done, to the record."""
        from electra_ds.data.loader import merge_cursors

        places = merge_cursors(cursors)
        blocks_per_lane = sum(shard.records for shard in self.manifest.shards) / len(places)
        within = (places[:, 2].double() / max(blocks_per_lane, 1.0)).clamp(max=1.0)
        return float((places[:, 1].double() + within).mean())

    def log_evaluation(self, step: int, tags: dict[str, float]) -> None:
        """Write ``eval/*``."""
        if self._folder is None:
            return
        values = {f"eval/{tag}": value for tag, value in tags.items()}
        self._write(step, values)
        shown = [
            f"{name} {values[tag]:.4f}"
            for name, tag in (
                ("loss", "eval/loss/total"),
                ("mlm", "eval/loss/mlm"),
                ("rtd", "eval/loss/rtd"),
                ("auc", "eval/discriminator/auc"),
            )
            if tag in values
        ]
        self._say(f"held-out at step {step}: {'  '.join(shown)}")

    def _write(self, step: int, values: dict[str, float]) -> None:
        if self._monitor is not None:
            self._monitor.write(step, values)

    def show_progress(self, step: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        log.info(text)

    def warn(self, text: str) -> None:
        """Log a sentence that asks for attention, on rank 0."""
        if self._folder is not None:
            if self._bar is not None:
                self._bar.clear()
            log.warning("warning: %s", text)

    def finished(self, progress: Any) -> None:
        """The last words of a finished run."""
        if self._folder is None:
            return
        self._end()
        log.info("finished: %d steps, %s real tokens", progress.step, f"{progress.real_tokens:,}")
        self._folder.write_status("finished", progress.step, EXIT_DONE)
        log.info("next: electra-ds export %s --output %s", self._folder.path, self._folder.path / "export")

    def stopped(self, progress: Any, reason: str) -> None:
        """The last words of a run that was asked to stop."""
        if self._folder is None:
            return
        self._end()
        self._folder.write_status("stopped", progress.step, EXIT_STOPPED, reason)
        log.info("stopped after step %d (%s); the same command resumes", progress.step, reason)

    def failed(self, progress: Any, reason: str) -> None:
        """Note a failure where a launcher's exit code may hide it."""
        if self._folder is not None:
            self._end()
            self._folder.write_status("failed", progress.step, 1, reason)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None


def _log_line(step: int, steps: int, values: dict[str, float], eta: float) -> str:
    parts = [f"step {step}/{steps}"]
    for name, tag, form in (
        ("loss", "loss/total", ".4f"),
        ("mlm", "loss/mlm", ".4f"),
        ("rtd", "loss/rtd", ".4f"),
        ("hp", "loss/hp", ".4f"),
        ("gen acc", "generator/accuracy", ".3f"),
        ("disc acc", "discriminator/accuracy", ".3f"),
        ("auc", "discriminator/auc", ".3f"),
        ("lr", "optim/lr", ".2e"),
        ("grad", "optim/grad_norm", ".2f"),
    ):
        if tag in values:
            parts.append(f"{name} {values[tag]:{form}}")
    if values["optim/skipped"]:
        parts.append(f"skipped {int(values['optim/skipped'])}")
    parts.append(f"{values['perf/tokens_per_s']:,.0f} tok/s")
    parts.append(f"mfu {100 * values['perf/mfu']:.1f}%")
    parts.append(f"wait {100 * values['perf/data_wait']:.1f}%")
    parts.append(f"eta {duration(eta)}")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """``3d04h``, ``2h05m`` or ``4m07s``."""
    whole = int(seconds)
    if whole >= 86_400:
        return f"{whole // 86_400}d{whole % 86_400 // 3600:02d}h"
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s"


def start_logging(folder: RunFolder | None) -> None:
    """Send the project's log to stdout and to log.txt on rank 0, and nowhere else on other ranks."""
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers.clear()
    if folder is None:
        log.addHandler(logging.NullHandler())
        return
    for handler, form in (
        (logging.StreamHandler(sys.stdout), "%(message)s"),
        (logging.FileHandler(folder.path / LOG, encoding="utf-8"), "%(asctime)s  %(message)s"),
    ):
        handler.setFormatter(logging.Formatter(form, datefmt="%Y-%m-%d %H:%M:%S"))
        log.addHandler(handler)


def process_ids(ranks: Any) -> tuple[int, ...]:
    """The pids of all ranks, in order of rank."""
    return tuple(ranks.gather(os.getpid()))
