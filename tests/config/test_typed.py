"""Strict types: what each kind of key takes, and what it refuses."""

from typing import Literal

import pytest

from electra_ds.config.typed import TypeMismatch, convert, describe, show

Pair = tuple[float, float]
Choice = Literal["linear", "wsd", "constant"]


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, int, 3),
        (True, bool, True),
        ("a", str, "a"),
        (3, float, 3.0),
        (0.5, float, 0.5),
        ("5e-4", float, 5e-4),
        ("1E5", float, 1e5),
        ("-2.5", float, -2.5),
        (".5", float, 0.5),
        ("1/3", float, 1 / 3),
        ("1 / 4", float, 0.25),
        (None, int | None, None),
        ("auto", int | Literal["auto"], "auto"),
        (4, int | Literal["auto"], 4),
        (1000, int | str, 1000),
        ("30min", int | str, "30min"),
        ([0.9, 1], Pair, (0.9, 1.0)),
        ("wsd", Choice, "wsd"),
    ],
)
def test_taken(value, annotation, expected):
    result = convert(value, annotation)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (True, int),
        (False, float),
        (1, bool),
        ("true", bool),
        (None, bool),
        (1.0, int),
        ("3", int),
        (3, str),
        (None, str),
        (True, str),
        (float("nan"), float),
        (float("inf"), float),
        ("nan", float),
        ("inf", float),
        ("1e999", float),
        ("1/0", float),
        ("1/3/5", float),
        ("1/", float),
        ("", float),
        ("٣", int),
        (10**400, float),
        ("big", int | Literal["auto"]),
        (True, int | Literal["auto"]),
        (True, int | str),
        (True, Literal[1, 2]),
        ([0.9], Pair),
        ([0.9, 0.99, 0.999], Pair),
        ("0.9, 0.99", Pair),
        ([0.9, True], Pair),
        ("cosine", Choice),
        (None, Choice),
        ({"a": 1}, float),
    ],
)
def test_refused(value, annotation):
    with pytest.raises(TypeMismatch, match="must be"):
        convert(value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        ("1e6", int, "must be an integer, not '1e6' (write 1000000)"),
        (5.0, int, "must be an integer, not 5.0 (write 5)"),
        (2.5, int, "must be an integer, not 2.5"),
        (True, int, "must be an integer, not true"),
        ("linaer", Choice, "must be one of linear, wsd, constant, not 'linaer' (did you mean 'linear'?)"),
        (None, float, "must be a finite number, not null"),
        ([1], Pair, "must be [a finite number, a finite number], not [1]"),
    ],
)
def test_the_message_says_what_is_wanted(value, annotation, text):
    with pytest.raises(TypeMismatch) as caught:
        convert(value, annotation)
    assert str(caught.value) == text


def test_words():
    assert describe(int | Literal["auto"]) == "an integer or auto"
    assert describe(str | None) == "text or null"
    assert show([1, None, "x", False]) == "[1, null, 'x', false]"
    assert len(show("x" * 1000)) <= 80
