"""One version everywhere, pins that cover what is asked for, and a wheel that needs no repository."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import electra_ds


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_newest_entry_of_the_changelog_is_this_version(root: Path) -> None:
    newest = re.search(r"^## (\S+)", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == electra_ds.__version__
    assert 'dynamic = ["version"]' in (root / "pyproject.toml").read_text()


def test_every_direct_dependency_is_pinned_for_every_python(root: Path) -> None:
    project = (root / "pyproject.toml").read_text()
    blocks = re.findall(r"^(?:dependencies|dev) = \[(.*?)\]", project, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    wanted = {canonical(name) for block in blocks for name in re.findall(r'"([A-Za-z0-9_.-]+)', block)}
    pins: dict[str, list[str]] = {}
    for line in (root / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin, _, marker = line.partition(" ; ")
            name, _, version = pin.partition("==")
            assert version, f"not an exact version: {line}"
            pins.setdefault(canonical(name), []).append(marker)
    assert wanted <= set(pins), f"without a pin: {sorted(wanted - set(pins))}"
    both = ['python_version < "3.11"', 'python_version >= "3.11"']
    assert all(sorted(pins[name]) in ([""], both) for name in wanted)


def test_the_licence_is_the_whole_apache_licence(root: Path) -> None:
    text = (root / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_its_recipes(root: Path, tmp_path: Path) -> None:
    """Recipes and the modelling files for exports come along when the package is installed."""
    pytest.importorskip("setuptools", reason="builds without network need setuptools in the environment")
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(root / "electra_ds", source / "electra_ds", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (root / name).exists():
            shutil.copy(root / name, source)
    build = (
        "-m pip wheel --quiet --no-build-isolation --no-deps --disable-pip-version-check --wheel-dir dist ."
    )
    done = subprocess.run(
        [sys.executable, *build.split(" ")], cwd=source, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "dist").glob("electra_ds-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for folder in ("*.py", "*.yaml"):
        wanted = {p.relative_to(root).as_posix() for p in (root / "electra_ds").rglob(folder)}
        assert wanted == {
            p.relative_to(installed).as_posix() for p in (installed / "electra_ds").rglob(folder)
        }
    done = subprocess.run(
        [sys.executable, "-c", "import electra_ds; print(electra_ds.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == str(installed / "electra_ds" / "__init__.py"), done.stderr
