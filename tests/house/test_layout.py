"""The house rules: files that fit in the head, one direction of imports, names that shadow nothing."""

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

# A room imports from itself and from rooms before it in this table; `config` from no other.
ROOMS = (
    "config",
    "recipes",
    "data",
    "model",
    "training",
    "hub",
    "finetune",
    "analysis",
    "cluster",
    "quickstart",
)
DOORS = ("cli", "train")  # thin modules above all rooms: they import any room, no room imports them

LINES_AT_MOST = 400
HEAVY = ("torch", "transformers", "deepspeed", "tensorboard", "matplotlib", "webdataset")


def electra_imports(tree: ast.AST, path: str) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything a file of the package imports from ``electra_ds``.

    Imports inside functions count too: a lazy import points in the same direction as an eager one.
    """
    package = path.removesuffix(".py").split("/")[:-1]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return [(line, name) for line, name in found if name.split(".")[0] == "electra_ds"]


def wrong_imports(tree: ast.AST, path: str) -> list[str]:
    parts = path.split("/")
    if len(parts) == 2:  # the doors and the package itself
        return []
    allowed = ROOMS[: ROOMS.index(parts[1]) + 1]
    wrong = []
    for line, name in electra_imports(tree, path):
        target = name.split(".")[1] if "." in name else ""
        if (target in ROOMS or target in DOORS) and target not in allowed:
            wrong.append(f"{path}:{line} imports {name}")
    return wrong


def test_every_file_fits_in_the_head(root: Path, python_files: list[Path]) -> None:
    too_long = {
        path.relative_to(root).as_posix(): count
        for path in python_files
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES_AT_MOST
    }
    assert not too_long, f"split these files by subject (at most {LINES_AT_MOST} lines): {too_long}"


def test_every_folder_of_the_package_is_a_room(root: Path) -> None:
    folders = {p.name for p in (root / "electra_ds").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= set(ROOMS), f"not in the table of rooms: {sorted(folders - set(ROOMS))}"


def test_rooms_import_in_one_direction(package_trees: dict[str, ast.Module]) -> None:
    wrong = [line for path, tree in package_trees.items() for line in wrong_imports(tree, path)]
    assert not wrong, "\n".join(wrong)


def test_the_direction_check_sees_wrong_imports() -> None:
    source = (
        "import electra_ds.training.loop\n"
        "from electra_ds import cli\n"
        "def f():\n"
        "    from ..hub import export\n"
        "from electra_ds.config import Config\n"
        "from . import shards\n"
        "from electra_ds import __version__\n"
    )
    wrong = wrong_imports(ast.parse(source), "electra_ds/data/example.py")
    assert [line.split(" ")[0] for line in wrong] == [f"electra_ds/data/example.py:{n}" for n in (1, 2, 4)]


def test_nothing_directly_in_the_package_shadows_another_module(root: Path) -> None:
    """``deepspeed electra_ds/train.py`` puts ``electra_ds/`` first on ``sys.path``."""
    names = {path.stem for path in (root / "electra_ds").iterdir() if not path.stem.startswith("__")}
    installed = {
        name: distributions
        for name, distributions in importlib.metadata.packages_distributions().items()
        if set(distributions) != {"electra-ds"}
    }
    shadowed = names & (set(sys.stdlib_module_names) | set(installed))
    assert not shadowed, f"rename {sorted(shadowed)}: it would be imported instead of the module of that name"


def test_commands_load_nothing_heavy(root: Path) -> None:
    """``electra-ds --help`` imports every ``commands.py``; slow libraries wait until they are used."""
    modules = [
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in sorted((root / "electra_ds").rglob("commands.py"))
    ]
    modules += ["electra_ds.cli"] * (root / "electra_ds" / "cli.py").is_file()
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
