"""Checkpoints that are whole or not there.

DeepSpeed writes into ``checkpoints/.partial-step-00001000/``. When every file is on the disk, a marker
``complete.json`` with sizes and checksums is added and the folder renamed to ``step-00001000``; then
``latest`` is renamed into place. A process killed at any moment leaves a partial folder at most, which the
next save removes.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.training.distributed import Ranks
from electra_ds.training.files import sync_folder, write_atomically
from electra_ds.training.safe_loading import refuse_code

CHECKPOINTS = "checkpoints"
MARKER = "complete.json"
FORMAT_VERSION = 1
_NAME = re.compile(r"step-(\d{8,})")
_PARTIAL = ".partial-"


@dataclass(frozen=True)
class Marker:
    """What a whole checkpoint says of itself."""

    step: int
    world_size: int
    zero_stage: int
    files: dict[str, dict[str, Any]]  # name -> {"bytes", "sha256"}


def checkpoint_name(step: int) -> str:
    """Folder name of the checkpoint after ``step`` updates."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int:
    """The step in a checkpoint's folder name, -1 if it is none."""
    match = _NAME.fullmatch(folder.name)
    return int(match.group(1)) if match else -1


def list_checkpoints(run: Path) -> list[Path]:
    """Checkpoint folders of a run, newest first by number; partial ones are not among them."""
    folder = run / CHECKPOINTS
    found = [path for path in folder.iterdir() if step_of(path) >= 0] if folder.is_dir() else []
    return sorted(found, key=step_of, reverse=True)


def read_marker(checkpoint: Path) -> Marker:
    """Read the marker and compare the sizes; raise InputError naming what is missing or truncated."""
    path = checkpoint / MARKER
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT_VERSION:
            raise InputError(
                f"{path}: checkpoint format {content['format']!r}, but this release reads {FORMAT_VERSION};"
                " use the release that wrote it"
            )
        marker = Marker(
            int(content["step"]),
            int(content["world_size"]),
            int(content["zero_stage"]),
            dict(content["files"]),
        )
    except FileNotFoundError:
        raise InputError(f"{checkpoint}: holds no {MARKER}, so it is no whole checkpoint") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{path}: damaged marker ({type(error).__name__}: {error})") from None
    for name, entry in marker.files.items():
        file = checkpoint / name
        size = file.stat().st_size if file.is_file() else None
        if size != entry["bytes"]:
            found = "is missing" if size is None else f"has {size} bytes"
            raise InputError(
                f"{file}: {found}, but the marker says {entry['bytes']}; the checkpoint is damaged"
            )
    return marker


def verify(checkpoint: Path) -> Marker:
    """Check every byte of a checkpoint and that loading it runs no code; raise InputError otherwise."""
    marker = read_marker(checkpoint)
    for name, entry in marker.files.items():
        if _sha256(checkpoint / name) != entry["sha256"]:
            raise InputError(f"{checkpoint / name}: altered since it was written (checksum differs)")
        if name.endswith(".pt"):
            refuse_code(checkpoint / name)
    return marker


def newest_whole(run: Path) -> Path:
    """The newest checkpoint of a run that verifies. Raises InputError if there is none."""
    checkpoints = list_checkpoints(run)
    reasons = []
    for checkpoint in checkpoints:
        try:
            verify(checkpoint)
            return checkpoint
        except InputError as error:
            reasons.append(str(error))
    detail = f" ({reasons[0]})" if reasons else ""
    raise InputError(f"{run}: holds no whole checkpoint{detail}; train it, or give another folder")


def save_checkpoint(
    engine: Any, ranks: Ranks, run: Path, step: int, client_state: dict[str, Any], zero_stage: int
) -> Path:
    """Write the checkpoint of ``step``; all ranks call it. Returns its folder.

    Raises RunFailure if it could not be written; older checkpoints are untouched then.
    """
    folder = run / CHECKPOINTS
    partial = folder / f"{_PARTIAL}{checkpoint_name(step)}"
    final = folder / checkpoint_name(step)
    try:
        if ranks.is_first:
            folder.mkdir(exist_ok=True)
            _remove_leftovers(folder)
        ranks.barrier()
        engine.save_checkpoint(str(folder), tag=partial.name, client_state=client_state, save_latest=False)
        ranks.barrier()
        if ranks.is_first:
            for script in folder.glob("zero_to_*.py"):  # DeepSpeed's; a run folder holds data, no programs
                script.unlink()
        names = sorted(str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file())
        mine = {name: _entry(partial / name) for name in names[ranks.rank :: ranks.world_size]}
        entries = {name: entry for part in ranks.gather(mine) for name, entry in part.items()}
        if ranks.is_first:
            _publish(partial, final, Marker(step, ranks.world_size, zero_stage, entries))
    except (OSError, RuntimeError) as error:
        raise RunFailure(
            f"the checkpoint of step {step} could not be written to {folder}: {error};"
            " earlier checkpoints are untouched"
        ) from error
    ranks.barrier()
    return final


def rotate(run: Path, keep: int, keep_every: int) -> None:
    """Delete all but the newest ``keep`` checkpoints and the milestones. Rank 0 calls it, after a save."""
    for checkpoint in list_checkpoints(run)[keep:]:
        if keep_every and step_of(checkpoint) % keep_every == 0:
            continue
        # Out of sight first: a delete that is cut off must not leave half a checkpoint under its name.
        doomed = checkpoint.with_name(f"{_PARTIAL}deleted-{checkpoint.name}")
        os.replace(checkpoint, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _publish(partial: Path, final: Path, marker: Marker) -> None:
    content = {"format": FORMAT_VERSION, **vars(marker)}
    write_atomically(partial / MARKER, json.dumps(content, indent=1) + "\n")
    sync_folder(partial)
    if final.exists():  # a damaged checkpoint of the same step, passed over on resume
        os.replace(final, final.with_name(f"{_PARTIAL}replaced-{final.name}"))
    os.replace(partial, final)
    sync_folder(final.parent)
    write_atomically(final.parent / "latest", final.name + "\n")


def _remove_leftovers(folder: Path) -> None:
    for path in folder.glob(f"{_PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file, contextlib.suppress(OSError):  # some network file systems know no fsync
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()
