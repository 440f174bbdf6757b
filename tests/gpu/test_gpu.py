"""Short runs of the real program on one CUDA device: what no CPU can show.

``benchmarks/gpu_check.sh`` runs them; ``make test`` leaves them out. One process, one GPU, a minute or two.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20
STOPPED = 75

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def train(ds_config: Path, shards: Path, output: Path, *overrides: str) -> int:
    """Run tiny_hp_dist for 20 steps, logging each, and return the exit code."""
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR")
    environment = {name: value for name, value in os.environ.items() if name not in launchers}
    command = [sys.executable, "-m", "electra_ds.train", "--deepspeed_config", str(ds_config)]
    command += ["--recipe", "tiny_hp_dist", "--data", str(shards), "--output", str(output)]
    command += [f"train.steps={STEPS}", "train.log_every=1", "optimizer.warmup_steps=2"]
    command += ["objective.hp.start_step=5", *overrides]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in (0, STOPPED), done.stderr[-3000:]
    return done.returncode


def series(run: Path, tag: str) -> list[float]:
    """The values of a tag at steps 1 to 20."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    by_step = {row["step"]: row[tag] for row in rows if tag in row}
    assert sorted(by_step) == list(range(1, STEPS + 1))
    return [by_step[step] for step in range(1, STEPS + 1)]


def test_bf16_under_zero_1_learns(gpu_shards: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(ROOT / "ds_configs" / "zero1_bf16.json", gpu_shards, run) == 0
    for tag in ("loss/total", "loss/mlm"):
        losses = series(run, tag)
        assert all(map(math.isfinite, losses)), losses
        assert sum(losses[-5:]) < sum(losses[:5]), losses
    environment = json.loads((run / "environment.json").read_text())
    assert torch.cuda.get_device_name(0) in json.dumps(environment), "the run was not on the GPU"


def test_the_loss_scale_of_fp16_is_saved_and_restored(gpu_shards: Path, tmp_path: Path) -> None:
    """A run that stops and resumes goes through the same scales as one that does not."""
    ds_config = json.loads((ROOT / "ds_configs" / "zero1_fp16.json").read_text())
    # A small first scale that doubles every three steps: at step 10 it is not what a new run starts with.
    ds_config["fp16"] |= {"initial_scale_power": 4, "loss_scale_window": 3}
    path = tmp_path / "fp16.json"
    path.write_text(json.dumps(ds_config))

    straight, halves = tmp_path / "straight", tmp_path / "halves"
    assert train(path, gpu_shards, straight) == 0
    assert train(path, gpu_shards, halves, f"train.stop_after={STEPS // 2}") == STOPPED
    assert train(path, gpu_shards, halves) == 0

    scales = series(straight, "optim/loss_scale")
    assert scales[STEPS // 2] > scales[0], "the scale never grew, so this test would prove nothing"
    assert series(halves, "optim/loss_scale") == scales
    assert series(halves, "loss/total") == pytest.approx(series(straight, "loss/total"), rel=1e-2)
