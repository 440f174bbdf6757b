"""What the tests of the house look at: files of the repository, as text and syntax trees, never executed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Folders of the repository's root that hold what was installed or made, not what is written by people.
MADE = {".git", ".venv", "build", "dist", "runs", "shards", "out", "quickstart"}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def package_trees() -> dict[str, ast.Module]:
    """Syntax tree of each Python file of the package, by its path from the root of the repository."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"), str(path))
        for path in sorted((ROOT / "electra_ds").rglob("*.py"))
    }


def _repository_files(suffix: str) -> list[Path]:
    top = [path for path in sorted(ROOT.iterdir()) if path.name not in MADE]
    below = [path for folder in top if folder.is_dir() for path in sorted(folder.rglob("*"))]
    return [path for path in (*top, *below) if path.suffix == suffix and path.is_file()]


@pytest.fixture(scope="session")
def python_files() -> list[Path]:
    return _repository_files(".py")


@pytest.fixture(scope="session")
def markdown_files() -> list[Path]:
    return _repository_files(".md")


@pytest.fixture(scope="session")
def shell_scripts() -> list[Path]:
    return [*_repository_files(".sh"), ROOT / ".ci" / "run"]
