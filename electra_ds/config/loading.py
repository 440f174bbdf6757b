"""From recipes, files and overrides to a validated :class:`Config`, and back to YAML.

Precedence: the recipe, then each file in turn, then the ``key=value`` overrides of the command line.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from electra_ds.config.errors import InputError
from electra_ds.config.layers import Layer, overrides_layer, read_layer
from electra_ds.config.recipes import find_recipe
from electra_ds.config.schema import Config
from electra_ds.config.validate import validate

T = TypeVar("T")


def load_config(recipe: str | Path, overrides: Sequence[str] = (), files: Sequence[Path] = ()) -> Config:
    """Load a recipe (a shipped name or a path), apply files and overrides, and validate the result.

    Raises :class:`InputError` with one line that names the file or the command line, the key, the value
    found and what to write instead.
    """
    layer = read_layer(find_recipe(recipe))
    for file in files:
        layer.update(read_layer(Path(file)))
    layer.update(overrides_layer(overrides))
    config = build(layer.values)
    validate(config, layer.sources)
    return config


def load_frozen(path: Path) -> Config:
    """Load the complete ``config.yaml`` of a run.

    A key that a later release added takes its default; a whole section that is missing means that the
    file is not a frozen configuration, or was cut short.
    """
    layer: Layer = read_layer(path)
    for section in (field.name for field in dataclasses.fields(Config) if field.name != "seed"):
        if not any(key.startswith(section + ".") for key in layer.values):
            raise InputError(
                f"{path}: not a complete configuration of a run, the section {section!r} is missing: "
                "give the config.yaml that the run wrote"
            )
    config = build(layer.values)
    validate(config, layer.sources)
    return config


def build(values: Mapping[str, Any]) -> Config:
    """Build the tree from dotted keys with typed values; absent keys take their defaults."""
    return _build(Config, "", values)


def _build(cls: type[T], prefix: str, values: Mapping[str, Any]) -> T:
    hints = get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        key = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            arguments[field.name] = _build(hints[field.name], key + ".", values)
        elif key in values:
            arguments[field.name] = values[key]
    return cls(**arguments)


def flatten(config: Config) -> dict[str, object]:
    """Return every setting by its dotted key, in the order of the tree."""
    flat: dict[str, object] = {}

    def walk(tree: Mapping[str, Any], prefix: str) -> None:
        for name, value in tree.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{name}.")
            else:
                flat[prefix + name] = value

    walk(dataclasses.asdict(config), "")
    return flat


def dump(config: Config) -> str:
    """Return the complete tree as YAML; :func:`load_frozen` gives an equal tree back."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    # Escapes all but ASCII: PyYAML writes some line breaks bare, and reads them back as spaces.
    return yaml.safe_dump(plain(dataclasses.asdict(config)), sort_keys=False, default_flow_style=False)
