"""`make` for a newcomer: the targets are listed, and setup installs once, whole, or not at all.

A stand-in for Python plays the installation and records how it was called, so nothing is downloaded.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TARGETS = {"help", "setup", "quickstart", "test", "slow", "lint", "format", "types", "clean"}

# Plays the interpreter that makes .venv and the one inside it. CALLS is the record; FAIL_PIP makes pip fail.
STAND_IN = """#!/bin/sh
case "$*" in
"-c import sys, venv"*) exit "${TOO_OLD:-0}" ;;
"-c import pip"*) exit 0 ;;
--version) echo "Python 3.12.0" ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo venv >> "$CALLS" ;;
"-m pip "*) echo "$*" >> "$CALLS"; exit "${FAIL_PIP:-0}" ;;
*) echo "$*" >> "$CALLS" ;;
esac
"""


class Clone:
    """A clone in a folder whose path has spaces, with nothing installed."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder / "my clones" / "electra ds"
        self.folder.mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(root / name, self.folder)
        self.python = folder / "stand in"
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)
        self.record = folder / "calls"

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        return subprocess.run(
            ["make", f"PYTHON={self.python}", *arguments],
            cwd=self.folder,
            env={**clean, "CALLS": str(self.record), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        self.record.unlink(missing_ok=True)
        return lines


@pytest.fixture
def clone(tmp_path: Path, root: Path) -> Clone:
    return Clone(tmp_path, root)


def test_help_lists_every_target_and_is_the_default(root: Path, clone: Clone) -> None:
    declared = re.findall(r"^\.PHONY: ([a-z-]+)$", (root / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(declared) == TARGETS
    done = clone.make()
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^  make ([a-z-]+) +\S", done.stdout, flags=re.MULTILINE)) == TARGETS
    assert clone.calls() == []


def test_setup_installs_once_with_the_pinned_versions(clone: Clone) -> None:
    done = clone.make("setup")
    assert done.returncode == 0, done.stderr
    venv, pip = clone.calls()
    assert venv == "venv"
    assert "-c constraints.txt" in pip
    assert pip.endswith("-e .[dev]")
    assert clone.make("setup").returncode == 0
    assert clone.calls() == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_setup_follows_changed_requirements(clone: Clone, name: str) -> None:
    clone.make("setup")
    clone.calls()
    later = (clone.folder / ".venv" / ".installed").stat().st_mtime + 5
    os.utime(clone.folder / name, (later, later))
    assert clone.make("setup").returncode == 0
    assert [call.split(" ")[1] for call in clone.calls()] == ["pip"], "the environment itself is kept"


def test_an_installation_that_failed_is_done_again(clone: Clone) -> None:
    failed = clone.make("test", FAIL_PIP="1")
    assert failed.returncode == 2
    assert not any("pytest" in call for call in clone.calls())
    assert not (clone.folder / ".venv" / ".installed").exists()
    assert clone.make("test").returncode == 0
    assert [call.split(" ")[1] for call in clone.calls()] == ["pip", "pytest"]


def test_a_moved_clone_gets_a_new_environment(clone: Clone) -> None:
    clone.make("setup")
    clone.calls()
    moved = clone.folder.with_name("moved here")
    clone.folder.rename(moved)
    clone.folder = moved
    assert clone.make("setup").returncode == 0
    assert clone.calls()[0] == "venv"


def test_too_old_a_python_is_named_with_the_remedy(clone: Clone) -> None:
    done = clone.make("setup", TOO_OLD="1")
    assert done.returncode == 2
    assert f"{clone.python} is" in done.stderr
    assert "Python >= 3.10" in done.stderr
    assert not (clone.folder / ".venv").exists()


def test_quickstart_hands_the_input_on_as_one_argument(clone: Clone) -> None:
    clone.make("setup")
    clone.calls()
    assert clone.make("quickstart").returncode == 0
    assert clone.make("quickstart", "INPUT=my text.txt").returncode == 0
    assert clone.calls() == ["-m electra_ds.quickstart", "-m electra_ds.quickstart --input my text.txt"]


def test_clean_keeps_runs_shards_and_the_environment(clone: Clone) -> None:
    kept = [clone.folder / name / "file" for name in ("runs", "shards", "out", ".venv/__pycache__")]
    gone = [clone.folder / name / "file" for name in ("build", ".mypy_cache", "tests/__pycache__")]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True)
        path.touch()
    assert clone.make("clean").returncode == 0
    assert all(path.exists() for path in kept)
    assert not any(path.parent.exists() for path in gone)
