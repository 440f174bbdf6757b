"""When a run is to stop before its end: a signal, or the death of the launcher that started it.

A stop is only noted here. The loop asks once a step, tells the other ranks, and all of them save and leave
together with exit code 75.
"""

import os
import signal
from pathlib import Path
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
# Programs that start ranks and whose death therefore ends a run. A shell is none: it may log out.
_LAUNCHER_SCRIPTS = {"deepspeed", "deepspeed.pt", "torchrun"}
_LAUNCHER_MODULES = ("deepspeed.launcher", "torch.distributed")


class StopWatch:
    """Notes the reason to stop. Use as a context manager: handlers are put back at the end."""

    def __init__(self) -> None:
        self.reason = ""
        self._launchers = _launcher_ancestors()

    def __enter__(self) -> "StopWatch":
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.reason:  # the second Ctrl-C of an impatient user
            raise KeyboardInterrupt
        self.reason = f"signal {signal.Signals(number).name}"

    def asked(self) -> bool:
        """Whether this rank has a reason to stop."""
        if not self.reason:
            for pid, started in self._launchers.items():
                if _process_field(pid, "started") != started:
                    self.reason = f"launcher (process {pid}) died"
        return bool(self.reason)


def _process_field(pid: int, field: str) -> str:
    """The parent's pid or the start time of a process, "" if it is gone or there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    values = stat[stat.rindex(")") + 2 :].split()
    if values[0] == "Z":
        return ""
    return values[1] if field == "parent" else values[19]


def _launcher_ancestors() -> dict[int, str]:
    """Pids and start times of the launchers above this process, as far as they follow each other."""
    launchers: dict[int, str] = {}
    pid = os.getppid()
    while pid > 1:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            break
        # `python /somewhere/deepspeed ...` or `python -u -m deepspeed.launcher.launch ...`; a word with
        # blanks is the command line of a shell.
        words = [word for word in command[:4] if " " not in word]
        if not any(Path(w).name in _LAUNCHER_SCRIPTS or w.startswith(_LAUNCHER_MODULES) for w in words):
            break
        launchers[pid] = _process_field(pid, "started")
        pid = int(_process_field(pid, "parent") or 0)
    return launchers
