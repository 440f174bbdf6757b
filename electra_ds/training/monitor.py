"""Where numbers go: metrics.jsonl, TensorBoard, and DeepSpeed's CSV and W&B monitors where asked for.

TensorBoard is written here and not by DeepSpeed, whose writer names nothing but loss and rate, has no
restart mark, and so draws a resumed curve twice. Only rank 0 makes one.
"""

import json
import math
from pathlib import Path
from typing import Any

from electra_ds.training.run_folder import METRICS, TENSORBOARD


class Monitor:
    """Writes flat dictionaries of numbers at a step. ``resumed_at`` > 0 hides a killed run's later points."""

    def __init__(self, run: Path, ds_config: dict[str, Any], resumed_at: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._file = (run / METRICS).open("a", encoding="utf-8")
        self._tensorboard = None
        section = ds_config.get("tensorboard", {"enabled": True})
        if section.get("enabled", False):
            purge = resumed_at + 1 if resumed_at else None
            self._tensorboard = SummaryWriter(str(run / TENSORBOARD), purge_step=purge, flush_secs=10)
        self._others = _deepspeed_monitors(run, ds_config)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write one line, and one point per tag; what is not finite becomes null, and no point."""
        finite = {tag: value for tag, value in values.items() if math.isfinite(value)}
        line = {"step": step, **{tag: finite.get(tag) for tag in values}}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        if self._tensorboard is not None:
            for tag, value in finite.items():
                self._tensorboard.add_scalar(tag, value, step)
        for other in self._others:
            other.write_events([(tag, value, step) for tag, value in finite.items()])

    def close(self) -> None:
        """Flush and close every file."""
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()


def _deepspeed_monitors(run: Path, ds_config: dict[str, Any]) -> list[Any]:
    monitors: list[Any] = []
    if ds_config.get("csv_monitor", {}).get("enabled", False):
        from deepspeed.monitor.config import CSVConfig
        from deepspeed.monitor.csv_monitor import csvMonitor

        section = {"output_path": str(run / "csv"), **ds_config["csv_monitor"]}
        monitors.append(csvMonitor(CSVConfig(**section)))
    if ds_config.get("wandb", {}).get("enabled", False):
        from deepspeed.monitor.config import WandbConfig
        from deepspeed.monitor.wandb import WandbMonitor

        monitors.append(WandbMonitor(WandbConfig(**ds_config["wandb"])))
    return monitors
