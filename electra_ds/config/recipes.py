"""The shipped recipes: their names, places and one-line descriptions."""

from pathlib import Path

from electra_ds.config.errors import InputError, nearest

RECIPES = Path(__file__).resolve().parent.parent / "recipes"


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes, smallest size first."""
    sizes = ("tiny", "small", "base", "large")
    names = [path.stem for path in RECIPES.glob("*.yaml")]
    return sorted(names, key=lambda name: (sizes.index(name.split("_")[0]), name))


def describe_recipe(name: str) -> str:
    """Return the first comment line of a shipped recipe."""
    first = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").split("\n", 1)[0]
    return first.lstrip("# ")


def find_recipe(recipe: str | Path, folder: Path | None = None) -> Path:
    """Return the file of a recipe given as a shipped name or as a path.

    Text with a ``/`` or ending in ``.yaml`` or ``.yml`` is a path, relative to ``folder`` (default: the
    working directory); any other text is a shipped name first and a path if no recipe is called so.
    Raises :class:`InputError` naming the nearest recipe and all others.
    """
    text = str(recipe)
    path = (folder or Path()) / Path(text).expanduser()
    is_path = isinstance(recipe, Path) or "/" in text or text.endswith((".yaml", ".yml"))
    if not is_path and text in recipe_names():
        return RECIPES / f"{text}.yaml"
    if path.is_file() and text:
        return path
    hint = nearest(Path(text).stem, recipe_names())
    what = f"no recipe file {str(path)!r}" if is_path else f"no recipe {text!r}"
    raise InputError(f"{what}{hint}: give the path of a YAML file or one of {', '.join(recipe_names())}")
