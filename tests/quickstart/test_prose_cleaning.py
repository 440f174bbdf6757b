"""Cleaning: what is no prose goes, what is prose stays word for word."""

import textwrap

import pytest

from electra_ds.quickstart.prose import blocks, is_prose, paragraphs, strip_markup

FIRST = "The reader keeps a small part of the file in memory and never more than that."
SECOND = "It is up to the caller to close the file when all of it has been read."


def test_prose_survives_and_wrapped_lines_are_joined():
    wrapped = "\n\n".join(textwrap.fill(text, 30) for text in (FIRST, SECOND))
    assert paragraphs(wrapped) == [FIRST, SECOND]


@pytest.mark.parametrize(
    "planted",
    [
        ">>> reader = open_the_file('here is a name')\n>>> reader.read()\n'some of the text'",
        "```python\nThis is not to be kept although it looks as if it were.\n```",
        "Such a block follows here::\n\n    This is not to be kept although it looks as if it were.\n",
        ".. code-block:: python\n\n    This is not to be kept although it looks as if it were.\n",
        "Parameters\n----------\nname : str\n    This is not to be kept although it looks as if it were.",
        "Args:\n    name (str): This is not to be kept although it looks as if it were.\n",
        ":param name: This is not to be kept although it looks as if it were.",
        "    +------+------+\n    | this | that |\n    +------+------+",
        "======  =======\nName    Meaning\n======  =======",
        "Licensed under the Apache License, you may not use this file except in compliance with it.",
        "def read(self, size=-1, *, strict=True) -> bytes: ...",
        "x1, y1 = f(a, b); x2, y2 = g(c, d)\nz = x1 * y2 - x2 * y1\nreturn z / (x1 + y1)",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_prose_is_dropped_and_its_neighbours_are_kept(planted):
    kept = paragraphs(f"{FIRST}\n\n{planted}\n\nNotes\n-----\n{SECOND}\n")
    assert kept == [FIRST, SECOND]


def test_google_section_ends_where_the_text_is_indented_as_before():
    text = (
        f"{FIRST}\n\nArgs:\n    name: What the file is called by those who have to find it again.\n\n{SECOND}"
    )
    assert paragraphs(text) == [FIRST, SECOND]


def test_list_items_are_paragraphs_of_their_own():
    text = f"* {FIRST}\n* {SECOND[:30]}\n  {SECOND[30:].lstrip()}"
    assert next(iter(blocks(text))) == FIRST
    assert len(list(blocks(text))) == 2


def test_text_of_notes_is_kept():
    assert paragraphs(f".. note::\n\n    {FIRST}\n\n.. math::\n\n    a = b + c\n") == [FIRST]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("Calls :meth:`~email.message.Message.walk` once.", "Calls walk once."),
        ("See :ref:`the guide <guide>` first.", "See the guide first."),
        ("Of ``None`` and *all* **these** `names`_.", "Of None and all these names."),
        ("Read [the page](docs/page.md) now.", "Read the page now."),
        ("As shown in [1]_ and [Knuth73]_.", "As shown in and."),
        ("A value in [0, 1] is kept.", "A value in [0, 1] is kept."),
        (
            "The __init__ method of file.py and a_name_here.",
            "The __init__ method of file.py and a_name_here.",
        ),
        ("Stays here. Look at https://example.org/a for it. Stays too.", "Stays here. Stays too."),
        ("Write <b>bold</b> text .", "Write bold text."),
        ("a * b and c * d", "a * b and c * d"),
    ],
)
def test_markup(marked, plain):
    assert strip_markup(marked) == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FIRST, True),
        ("Too short to be kept.", False),
        (FIRST.removesuffix("."), False),  # does not end
        (FIRST.replace("The", "the"), False),  # does not begin
        (
            "Tensor matrix vector scalar gradient optimizer scheduler dataset sampler loader worker batch.",
            False,
        ),
        (
            "The use_cache and past_key_values of hidden_states is the same as attn_mask in forward_all.",
            False,
        ),
        ("The файл и чтение of the book и многое другое in the house.", False),
    ],
)
def test_is_prose(text, expected):
    assert is_prose(text) is expected
