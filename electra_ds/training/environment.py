"""``environment.json``: what a run was made with, so that it can be made again."""

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from electra_ds import __version__

_PACKAGES = ("torch", "deepspeed", "transformers", "tokenizers", "webdataset", "numpy", "safetensors")
# Variables that change what a run does. Never the whole environment: it holds secrets.
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "SLURM_JOB_ID", "SLURM_NNODES")


def describe_environment(ranks: Any) -> dict[str, Any]:
    """Versions, git commit, host, devices and command of this start."""
    import torch

    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = "not installed"
    on_gpu = torch.cuda.is_available()
    return {
        "electra_ds": __version__,
        "git": _git_commit(),
        "python": platform.python_version(),
        "packages": packages,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        if on_gpu
        else ["cpu"],
        "threads": torch.get_num_threads(),
        "world_size": ranks.world_size,
        "command": sys.argv,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _git_commit() -> str:
    """The commit of the source tree, with ``-dirty`` where it was changed; "" for an installed package."""
    root = Path(__file__).resolve().parents[2]
    try:
        result = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
