"""Small files written so that a reader sees the old one or the new one, never half of it."""

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a text file through a temporary name in the same folder."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
