"""What the tests of the house look at: files of the repository, as text and syntax trees, never executed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "runs", "shards", "out", "__pycache__"}


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


def _repository_files(*suffixes: str) -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.suffix in suffixes
        and not SKIPPED_FOLDERS & set(path.relative_to(ROOT).parts)
        and not any(part.endswith(".egg-info") for part in path.parts)
    )


@pytest.fixture(scope="session")
def python_files() -> list[Path]:
    return _repository_files(".py")


@pytest.fixture(scope="session")
def markdown_files() -> list[Path]:
    return _repository_files(".md")


@pytest.fixture(scope="session")
def shell_scripts() -> list[Path]:
    return [*_repository_files(".sh"), ROOT / ".ci" / "run"]
