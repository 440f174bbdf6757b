"""Runs of the real program in processes of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPU = ROOT / "ds_configs" / "cpu.json"
TINY = [
    *("model.layers=2", "model.hidden=32", "model.heads=2", "model.ffn=64", "model.embedding=32"),
    *("data.lanes=8", "train.batch=8", "train.log_every=5", "train.checkpoint_every=1000"),
]


@dataclass(frozen=True)
class Finished:
    """A process that has ended."""

    code: int
    out: str
    err: str


def run(arguments: list[str], *, ranks: int = 1, timeout: float = 240, ds_config: Path = CPU) -> Finished:
    """Run train.py: alone, or under DeepSpeed's launcher."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "electra_ds.train"]
    if ranks > 1:
        from electra_ds.training.distributed import free_port

        launcher = Path(sys.executable).with_name("deepspeed")
        command = [sys.executable, str(launcher), "--num_accelerators", str(ranks)]
        command += ["--master_port", str(free_port()), str(ROOT / "electra_ds" / "train.py")]
    process = subprocess.run(
        [*command, "--deepspeed_config", str(ds_config), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    return Finished(process.returncode, process.stdout, process.stderr)


def arguments(shards: Path, output: Path, *overrides: str, recipe: str = "tiny_electra") -> list[str]:
    """A small run of a recipe."""
    return ["--recipe", recipe, "--data", str(shards), "--output", str(output), *TINY, *overrides]


def read_metrics(run_folder: Path) -> list[dict]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
