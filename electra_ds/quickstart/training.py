"""Pretraining through the real launcher: started, stopped half-way by a signal, and resumed.

The launcher runs in a session of its own, so that a Ctrl-C at the terminal reaches this process alone, which
then asks the ranks to save and leave, as a batch system would.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_ds.config.errors import EXIT_STOPPED, InputError, RunFailure
from electra_ds.quickstart.stages import program

RECIPE = "tiny_hp_dist"
HALF_PRECISION, FULL_PRECISION = "zero1_bf16.json", "cpu.json"
_POLL_SECONDS = 0.2
_SAVING_SECONDS = 120.0  # given to the ranks to save and leave
_TOP = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Launch:
    """A training command and the environment it needs."""

    command: tuple[str, ...]  # without the port, which is another one at each start
    environment: dict[str, str]  # over this process's own
    run: Path
    steps: int

    def shown(self) -> str:
        """The command as a user would type it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        words = [os.path.relpath(word) if word.startswith(str(_TOP)) else word for word in self.command]
        return shlex.join([*variables, program("deepspeed"), *words])


def choose_ds_config() -> str:
    """The file of ``ds_configs/`` that trains fastest here: in bf16 where the processor computes in it."""
    import torch

    on_gpu = torch.cuda.is_available()
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else _cpu_is_fast_in_bf16()
    return HALF_PRECISION if fast else FULL_PRECISION


def _cpu_is_fast_in_bf16() -> bool:
    """Whether it multiplies matrices clearly faster than in fp32; without such units it emulates, slowly."""
    import torch

    def seconds(dtype: torch.dtype) -> float:
        matrix = torch.ones(512, 512, dtype=dtype)
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            matrix @ matrix
            best = min(best, time.perf_counter() - begun)
        return best

    return seconds(torch.bfloat16) < 0.7 * seconds(torch.float32)


def plan_launch(data: Path, held_out: Path, run: Path, steps: int, ds_config: str) -> Launch:
    """Two ranks on CPUs, or as many as there are GPUs, at most two. Raises InputError outside a clone."""
    import torch

    gpus = torch.cuda.device_count()
    ranks = min(2, gpus) or 2
    ds_file = _TOP / "ds_configs" / ds_config
    if not ds_file.is_file():
        raise InputError(f"{ds_file}: not found; quickstart runs from a clone of the repository")
    environment = {} if gpus else {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    command = (
        *("--num_accelerators", str(ranks), str(_TOP / "electra_ds" / "train.py")),
        *("--deepspeed_config", str(ds_file), "--recipe", RECIPE),
        *("--data", str(data), "--eval-data", str(held_out), "--output", str(run)),
        f"train.steps={steps}",
        f"train.log_every={max(1, min(50, steps // 40))}",
    )
    return Launch(command, environment, run, steps)


def read_status(run: Path) -> dict[str, Any]:
    """The run's status.json, {} if there is none yet."""
    try:
        return json.loads((run / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def train_until(launch: Launch, stop_step: int | None, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Start or resume the run; return its last status, ``stopped`` or ``finished``.

    With ``stop_step`` a rank gets SIGTERM once that step is reached. On KeyboardInterrupt the ranks are
    stopped the same way, and it is raised again once they have saved. Raises RunFailure if the run fails.
    """
    before = read_status(launch.run)
    process = _start(launch)
    asked = False
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            status = read_status(launch.run)
            if stop_step is None or asked or not _is_running(status, before):
                continue
            if status["step"] >= stop_step:
                pid = status["pids"][-1]
                say(
                    f"-- step {status['step']}: SIGTERM to a rank (process {pid}), as a batch system would do"
                )
                os.kill(pid, signal.SIGTERM)
                asked = True
    except KeyboardInterrupt:
        say("\n-- asking the ranks to save and leave (again Ctrl-C: end them at once)")
        _leave(process, launch.run, before)
        raise
    finally:
        if process.poll() is None:
            _kill(process)
    status = read_status(launch.run)
    if status.get("state") == "finished" or (asked and _has_stopped(status)):
        return status
    reason = f": {status['reason']}" if status.get("state") == "failed" else ""
    raise RunFailure(
        f"training left with exit code {process.returncode}{reason}; see above and {launch.run}/log.txt"
    )


def _start(launch: Launch) -> "subprocess.Popen[bytes]":
    script = Path(sysconfig.get_path("scripts")) / "deepspeed"
    # The launcher calls our planned stop an error, so it is to report what is worse only.
    options = ["--master_port", str(free_port()), "--log_level", "critical"]
    command = [sys.executable, str(script), *options, *launch.command]
    quiet = {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore::FutureWarning"}
    environment = {**os.environ, **quiet, **launch.environment}
    return subprocess.Popen(command, env=environment, start_new_session=True)


def free_port() -> int:
    """A port of this host that nobody listens on, so that two quickstarts do not meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_running(status: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether the status is one of the ranks just started, not what a killed run left."""
    pids = status.get("pids")
    return status.get("state") == "running" and bool(pids) and pids != before.get("pids")


def _has_stopped(status: dict[str, Any]) -> bool:
    return status.get("state") == "stopped" and status.get("exit_code") == EXIT_STOPPED


def _leave(process: "subprocess.Popen[bytes]", run: Path, before: dict[str, Any]) -> None:
    """Let the ranks save; before their first log line there is nothing to save."""
    status = read_status(run)
    try:
        if not _is_running(status, before):
            return
        os.kill(status["pids"][0], signal.SIGTERM)
        process.wait(_SAVING_SECONDS)
    except (KeyboardInterrupt, ProcessLookupError, subprocess.TimeoutExpired):
        return


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End the launcher and its ranks, which share its session."""
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
