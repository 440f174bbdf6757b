"""Layers of a configuration: what one file, or the command line, sets.

A layer is flat: dotted keys with values that already have the right type, and for each key the place it
came from, so that every later message can name it. Layers are merged by updating one with the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from electra_ds.config.errors import InputError
from electra_ds.config.recipes import find_recipe
from electra_ds.config.typed import TypeMismatch, convert, leaf_types, section_names, show, suggest

COMMAND_LINE = "command line"


@dataclass
class Layer:
    """Typed values by dotted key, and the file (or ``command line``) that each came from."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: object, source: str) -> None:
        """Convert and store one setting; an unknown key or a wrong type is an :class:`InputError`."""
        if key in section_names():
            raise InputError(
                f"{source}: {key} is a section, it cannot be set to {show(value)}: set its keys, as in "
                f"{next(name for name in leaf_types() if name.startswith(key + '.'))}=..."
            )
        if key not in leaf_types():
            raise InputError(f"{source}: unknown key {key!r}{suggest(key)}")
        try:
            self.values[key] = convert(value, leaf_types()[key])
        except TypeMismatch as mismatch:
            raise InputError(f"{source}: {key} {mismatch}") from None
        self.sources[key] = source

    def update(self, later: "Layer") -> None:
        """Let a later layer win."""
        self.values.update(later.values)
        self.sources.update(later.sources)


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key may stand only once and ``1:30`` is text, not the number 90."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value!r} stands here a second time", key_node.start_mark
                )
            if isinstance(key_node, yaml.ScalarNode):
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)

    def _construct_number(self, node: yaml.ScalarNode) -> object:
        # YAML 1.1 reads 1:30 in base 60 and 0123 in base 8; nobody who writes a recipe means that.
        text = str(node.value).lstrip("+-")
        if ":" in text or (len(text) > 1 and text.startswith("0") and text.replace("_", "").isdigit()):
            return node.value
        if node.tag.endswith(":int"):
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader._construct_number)
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader._construct_number)


def parse_yaml(text: str, source: str) -> object:
    """Parse YAML without constructing objects; errors name the source, line and column."""
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (
            f", line {mark.line + 1}, column {mark.column + 1}"
            if mark and not source.startswith(COMMAND_LINE)
            else ""
        )
        problem = error.problem or error.context
        raise InputError(f"{source}{where}: not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid YAML: {str(error) or type(error).__name__}") from None


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read a file that must hold one non-empty YAML mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}: save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): give an existing YAML file") from None
    tree = parse_yaml(text, str(path))
    if tree is None:
        raise InputError(f"{path}: the file is empty: write at least one key, or `extends: small_electra`")
    if not isinstance(tree, dict):
        raise InputError(f"{path}: must hold `key: value` lines, not {show(tree)}")
    return tree


def read_layer(path: Path) -> Layer:
    """Read a file and all files it ``extends:``, the outermost winning."""
    chain: list[tuple[Path, dict[Any, Any]]] = []
    next_path: Path | None = path
    while next_path is not None:
        if next_path.resolve() in [seen.resolve() for seen, _ in chain]:
            names = " -> ".join(str(seen) for seen, _ in chain)
            raise InputError(f"{path}: extends goes in a circle: {names} -> {next_path}: remove one extends:")
        tree = read_yaml(next_path)
        chain.append((next_path, tree))
        next_path = _parent(tree.pop("extends", None), next_path)
    layer = Layer()
    for file, tree in reversed(chain):
        _fill(layer, tree, "", str(file))
    return layer


def _parent(extends: object, path: Path) -> Path | None:
    if extends is None:
        return None
    if not isinstance(extends, str):
        raise InputError(
            f"{path}: extends must be one recipe name or one path relative to this file, not {show(extends)}"
        )
    try:
        return find_recipe(extends, folder=path.parent)
    except InputError as error:
        raise InputError(f"{path}: extends: {error}") from None


def _fill(layer: Layer, tree: dict[Any, Any], prefix: str, source: str) -> None:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if "." in str(name) and (key in leaf_types() or key in section_names()):
            section, _, leaf = key.rpartition(".")
            raise InputError(f"{source}: {key!r}: in a file, write {leaf}: under {section}:")
        if key in section_names() and isinstance(value, dict):
            _fill(layer, value, key + ".", source)
        elif key not in section_names() or value is not None:  # a section with nothing under it is fine
            layer.set(key, value, source)


def overrides_layer(overrides: Sequence[str]) -> Layer:
    """Read ``key=value`` overrides; the value is YAML, the last one for a key wins."""
    layer = Layer()
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            hint = suggest(key)
            raise InputError(f"{COMMAND_LINE}: {override!r} is not key=value, as in train.steps=20{hint}")
        if key in leaf_types():
            layer.set(key, parse_yaml(text, f"{COMMAND_LINE}: {key}"), COMMAND_LINE)
        else:
            layer.set(key, text, COMMAND_LINE)
    return layer
