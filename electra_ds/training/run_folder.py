"""The run folder: what it holds, who may write into it, and where a run goes on.

    config.yaml       the frozen, complete configuration      metrics.jsonl  one object a log step
    ds_config.json    as used                                  tb/            TensorBoard
    environment.json  versions, host, devices, command         log.txt        what the terminal showed
    manifest.json     of the shards; tokenizer/ their files    status.json    what it is doing
    checkpoints/step-00001000/, checkpoints/latest

Only rank 0 writes here, except for the checkpoints. A second run is never mixed into a folder: the same
command resumes it, another configuration is refused.
"""

import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_ds.config.errors import InputError
from electra_ds.config.loading import dump, load_frozen
from electra_ds.config.resume import refused_changes
from electra_ds.config.schema import Config
from electra_ds.data.manifest import MANIFEST_NAME, TOKENIZER_FOLDER, Manifest
from electra_ds.training.checkpoint import list_checkpoints, step_of, verify
from electra_ds.training.files import write_atomically

CONFIG = "config.yaml"
DS_CONFIG = "ds_config.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
STATUS = "status.json"
LOG = "log.txt"
TENSORBOARD = "tb"
_LOCK = ".lock"
_SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class Start:
    """Where a run begins: at step 0 without a checkpoint, or after a checkpoint's step."""

    checkpoint: Path | None = None
    step: int = 0
    passed_over: tuple[str, ...] = ()  # why newer checkpoints were not taken


class RunFolder:
    """A run folder held by this process. Rank 0 makes one; it stays locked as long as the process lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Any = None

    def open(self, config: Config, manifest: Manifest, resume: str) -> Start:
        """Decide between new run and resume, and make the folder ready to be written.

        Args:
            resume: ``auto``, ``never``, or the path of one of this run's checkpoints.

        Raises InputError if the folder belongs to something else.
        """
        has_run = (self.path / CONFIG).is_file()
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: is a file; choose another --output")
        if not has_run and self.path.is_dir() and any(p.name != _LOCK for p in self.path.iterdir()):
            raise InputError(f"{self.path}: not empty, and holds no run to resume; choose another --output")
        if has_run and resume == "never":
            raise InputError(
                f"{self.path}: holds a run already; drop --resume never, or choose another --output"
            )
        self._take_lock()
        if has_run:
            self._check_same_run(config, manifest)
        start = self._find_start(resume)
        write_atomically(self.path / CONFIG, dump(config))
        if not (self.path / MANIFEST_NAME).is_file():
            self._copy_data_files(manifest)
        return start

    def _take_lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / _LOCK).open("a")
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); choose another --output"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{self.path}: another process is training in it ({self.status().get('pids', 'unknown')});"
                " wait for it, or choose another --output"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _check_same_run(self, config: Config, manifest: Manifest) -> None:
        changes = refused_changes(load_frozen(self.path / CONFIG), config)
        if changes:
            raise InputError(
                f"{self.path}: holds a run with other settings ({'; '.join(changes)});"
                " give the same ones to resume it, or choose another --output"
            )
        copy = self.path / MANIFEST_NAME
        if not copy.is_file() and not list_checkpoints(self.path):
            return  # killed in its first second
        try:
            before = json.loads(copy.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(f"{copy}: cannot be read ({error}); the run cannot be resumed") from None
        now = json.loads((manifest.folder / MANIFEST_NAME).read_bytes())
        if before["tokenizer"] != now["tokenizer"]:
            raise InputError(
                f"{self.path}: this run uses another tokenizer than {manifest.folder}; give its shards"
            )
        if before["shards"] != now["shards"]:
            raise InputError(
                f"{self.path}: this run uses other shards than {manifest.folder}; give the same --data"
            )

    def _copy_data_files(self, manifest: Manifest) -> None:
        shutil.copytree(manifest.tokenizer_folder, self.path / TOKENIZER_FOLDER, dirs_exist_ok=True)
        text = (manifest.folder / MANIFEST_NAME).read_text(encoding="utf-8")
        write_atomically(self.path / MANIFEST_NAME, text)

    def _find_start(self, resume: str) -> Start:
        if resume not in ("auto", "never"):
            return self._start_at(Path(resume))
        passed_over: list[str] = []
        for checkpoint in list_checkpoints(self.path):
            try:
                return Start(checkpoint, verify(checkpoint).step, tuple(passed_over))
            except InputError as error:
                passed_over.append(str(error))
        if passed_over:
            raise InputError(f"{self.path}: none of its checkpoints is whole: {passed_over[0]}")
        return Start()

    def _start_at(self, wanted: Path) -> Start:
        own = {path.resolve(): path for path in list_checkpoints(self.path)}
        checkpoint = own.get(wanted.resolve())
        if checkpoint is None:
            listed = ", ".join(str(path) for path in own.values()) or "none yet"
            raise InputError(f"--resume {wanted}: no checkpoint of this run; it has: {listed}")
        start = Start(checkpoint, verify(checkpoint).step)
        aside = checkpoint.parent / _SET_ASIDE
        for newer in own.values():
            if step_of(newer) > start.step:  # they belong to a future that will not come
                aside.mkdir(exist_ok=True)
                shutil.rmtree(aside / newer.name, ignore_errors=True)
                os.replace(newer, aside / newer.name)
        return start

    def status(self) -> dict[str, Any]:
        """The content of status.json, {} if there is none."""
        try:
            return json.loads((self.path / STATUS).read_text())
        except (OSError, ValueError):
            return {}

    def write_status(
        self, state: str, step: int, exit_code: int | None = None, reason: str = "", **more: Any
    ) -> None:
        """Say what the run is doing, for who cannot see its exit code."""
        content = {"state": state, "step": step, "exit_code": exit_code, "reason": reason, **more}
        write_atomically(self.path / STATUS, json.dumps(content) + "\n")

    def write_json(self, name: str, content: Any) -> None:
        """Write ds_config.json or environment.json."""
        write_atomically(self.path / name, json.dumps(content, indent=2, sort_keys=True) + "\n")

    def cut_metrics(self, step: int) -> None:
        """Take out of metrics.jsonl what lies after ``step`` (written, but not in the checkpoint)."""
        path = self.path / METRICS
        if not path.is_file():
            return
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue  # the last line of a killed run may be cut off
        write_atomically(path, "".join(kept))
