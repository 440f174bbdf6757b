"""The work folder of a quickstart: which stages are done, and that only one process works in it.

    quickstart.json  the stages done, and what they were told
    corpus/  tokenizer/  shards/train/  shards/heldout/  run/  export/

A stage counts as done once ``quickstart.json`` says so. What an unfinished one left is thrown away and made
again, except by training, which resumes.
"""

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electra_ds.config.errors import EXIT_BAD_INPUT, EXIT_DONE, InputError, RunFailure

STATE_NAME = "quickstart.json"
_LOCK_NAME = ".lock"


class Workplace:
    """A quickstart's folder, locked as long as this object lives. Raises InputError if it cannot be had."""

    def __init__(self, folder: Path, inputs: Sequence[str]) -> None:
        self.folder = folder
        self._path = folder / STATE_NAME
        settings = {"input": [str(Path(name).resolve()) for name in inputs]}
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: is a file; choose another --work")
        if not self._path.is_file():
            if folder.is_dir() and any(path.name != _LOCK_NAME for path in folder.iterdir()):
                raise InputError(f"{folder}: is not empty, and no quickstart made it; choose another --work")
            self._lock()
            self._state: dict[str, Any] = {"settings": settings, "done": {}, "notes": {}}
            self._save()
            return
        self._lock()
        try:
            self._state = json.loads(self._path.read_text(encoding="utf-8"))
            made_with = self._state["settings"]
        except (ValueError, KeyError) as error:
            raise InputError(
                f"{self._path}: cannot be read ({error}); remove {folder} to begin anew"
            ) from None
        if made_with != settings:
            raise InputError(
                f"{folder}: holds a quickstart with other text ({_named(made_with)}, now {_named(settings)});"
                " choose another --work, or remove it"
            )

    def _lock(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock_file = (self.folder / _LOCK_NAME).open("a")
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{self.folder}: another quickstart is at work in it; wait for it, or choose another --work"
            ) from None
        except OSError as error:
            raise InputError(
                f"{self.folder}: cannot be written ({error.strerror}); choose another --work"
            ) from None

    def _save(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._state, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self._path)

    def is_done(self, stage: str) -> bool:
        """Whether a stage was finished earlier, and what it made is still there."""
        outputs = self._state["done"].get(stage)
        return outputs is not None and all((self.folder / output).exists() for output in outputs)

    def begin(self, *outputs: str) -> None:
        """Throw away what an unfinished stage left."""
        for output in outputs:
            shutil.rmtree(self.folder / output, ignore_errors=True)

    def finish(self, stage: str, *outputs: str) -> None:
        """Note that a stage is done and what it made."""
        self._state["done"][stage] = list(outputs)
        self._save()

    def forget(self, *stages: str) -> None:
        """Note that stages are to be done again."""
        for stage in stages:
            self._state["done"].pop(stage, None)
        self._save()

    def note(self, name: str, value: Any) -> None:
        """Keep a value for later starts."""
        self._state["notes"][name] = value
        self._save()

    def noted(self, name: str) -> Any:
        """What :meth:`note` kept, or None."""
        return self._state["notes"].get(name)


def _named(settings: dict[str, Any]) -> str:
    return ", ".join(settings["input"]) or "the installation's own"


def program(name: str) -> str:
    """How to call an installed console script: by name if it is on PATH, else by its path."""
    if shutil.which(name):
        return name
    path = Path(sysconfig.get_path("scripts")) / name
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def run_command(arguments: Sequence[str]) -> None:
    """Show and run an ``electra-ds`` command. Raises InputError or RunFailure if it fails; it said why."""
    print(f"$ {shlex.join([program('electra-ds'), *arguments])}", flush=True)
    command = [sys.executable, "-m", "electra_ds.cli", *arguments]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONUNBUFFERED": "1"}  # none of them trains
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("next: "):  # the next stage is ours
                print(line, end="", flush=True)
    if process.returncode == EXIT_BAD_INPUT:
        raise InputError(f"electra-ds {arguments[0]} refused its input, as said above")
    if process.returncode != EXIT_DONE:
        raise RunFailure(f"electra-ds {arguments[0]} failed with exit code {process.returncode}")
