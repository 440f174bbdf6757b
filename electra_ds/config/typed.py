"""Strict types for the configuration tree: what a key may hold, and nothing else.

A value read from YAML or from the command line is converted to the type that the dataclass field
declares, or refused. Three conveniences: an integer is a fine float, a float may be written in the forms
that YAML 1.1 takes for text (``5e-4``), and as a fraction (``1/3``).
"""

import dataclasses
import math
import re
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from electra_ds.config.errors import nearest
from electra_ds.config.schema import Config

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?")


class TypeMismatch(ValueError):
    """A value does not fit its key; the text says what is wanted and what was found."""


@cache
def leaf_types() -> dict[str, Any]:
    """Return the type of every setting by dotted key, in the order of the tree."""
    leaves: dict[str, Any] = {}
    _collect(Config, "", leaves, [])
    return leaves


@cache
def section_names() -> tuple[str, ...]:
    """Return the dotted names of the sections: ``data``, ``model``, ``model.generator``, ..."""
    sections: list[str] = []
    _collect(Config, "", {}, sections)
    return tuple(sections)


def _collect(cls: type, prefix: str, leaves: dict[str, Any], sections: list[str]) -> None:
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        key = prefix + field.name
        if dataclasses.is_dataclass(hints[field.name]):
            sections.append(key)
            _collect(hints[field.name], key + ".", leaves, sections)
        else:
            leaves[key] = hints[field.name]


def suggest(key: str) -> str:
    """Return ``" (did you mean 'x'?)"`` for an unknown dotted key, or ``""``.

    The bare last name of a setting (``lr``) finds its place in the tree (``optimizer.lr``).
    """
    known = [*leaf_types(), *section_names()]
    same_name = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
    if same_name:
        return nearest(key, same_name) or f" (did you mean {same_name[0]!r}?)"
    return nearest(key, known)


def show(value: object) -> str:
    """Write a value the way a user would type it: ``true``, ``null``, ``'text'``, ``[0.9, 0.999]``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(item) for item in value) + "]"
    if isinstance(value, dict):
        return "a section"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def convert(value: object, annotation: Any) -> object:
    """Return ``value`` as the declared type, or raise :class:`TypeMismatch`."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _convert_union(value, annotation)
    if origin is Literal:
        # type() keeps true from passing as 1.
        if any(type(value) is type(choice) and value == choice for choice in get_args(annotation)):
            return value
        hint = nearest(value, get_args(annotation)) if isinstance(value, str) else ""
        raise _mismatch(value, annotation, hint)
    if origin is tuple:
        members = get_args(annotation)
        if not isinstance(value, (list, tuple)) or len(value) != len(members):
            raise _mismatch(value, annotation)
        return tuple(convert(item, member) for item, member in zip(value, members, strict=True))
    if annotation is float:
        return _convert_float(value)
    if annotation is type(None):
        if value is None:
            return None
    elif type(value) is annotation:  # bool, int, str; a bool is never an int
        return value
    raise _mismatch(value, annotation, _int_hint(value) if annotation is int else "")


def _convert_union(value: object, annotation: Any) -> object:
    for member in get_args(annotation):
        try:
            return convert(value, member)
        except TypeMismatch:
            continue
    raise _mismatch(value, annotation)


def _convert_float(value: object) -> float:
    number: float
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
        elif isinstance(value, str):
            above, slash, below = (part.strip() for part in value.partition("/"))
            if not all(_NUMBER.fullmatch(part) for part in ((above, below) if slash else (above,))):
                raise _mismatch(value, float)
            number = float(above) / float(below) if slash else float(above)
        else:
            raise _mismatch(value, float)
    except (OverflowError, ZeroDivisionError):
        raise _mismatch(value, float) from None
    if not math.isfinite(number):
        raise _mismatch(value, float)
    return number


def _int_hint(value: object) -> str:
    """``1e6`` and ``5.0`` are whole, but not written as an integer: say how to write them."""
    try:
        number = _convert_float(value)
    except TypeMismatch:
        return ""
    return f" (write {int(number)})" if number.is_integer() and abs(number) < 1e15 else ""


def _mismatch(value: object, annotation: Any, hint: str = "") -> TypeMismatch:
    return TypeMismatch(f"must be {describe(annotation)}, not {show(value)}{hint}")


def describe(annotation: Any) -> str:
    """Name a type in words: ``a finite number``, ``one of linear, wsd, constant``."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(member) for member in members)
    if origin is Literal:
        return members[0] if len(members) == 1 else "one of " + ", ".join(map(str, members))
    if origin is tuple:
        return "[" + ", ".join(describe(member) for member in members) + "]"
    words = {bool: "true or false", int: "an integer", float: "a finite number", str: "text"}
    return words.get(annotation, "null")
