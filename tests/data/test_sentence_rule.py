"""The sentence rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.data.sentences import split_sentences


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("One is here. Two is there! Three?  Four", ["One is here.", "Two is there!", "Three?", "Four"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("Dr. J. Smith of the U.S. Navy came.", ["Dr. J. Smith of the U.S. Navy came."]),
        ("It cost 3.5 million, approx. half. No more.", ["It cost 3.5 million, approx. half.", "No more."]),
        ("version 2. is fine", ["version 2. is fine"]),
        ("我喜欢中国。你呢？好！", ["我喜欢中国。", "你呢？", "好！"]),
        ("هل أنت هنا؟ نعم أنا هنا.", ["هل أنت هنا؟", "نعم أنا هنا."]),
        ("यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        ("   ", []),
    ],
)
def test_rule(line, sentences):
    assert split_sentences(line) == sentences


@given(st.text(alphabet="aB .!?。\"'3J", max_size=60))
def test_no_character_is_lost(line):
    assert "".join("".join(split_sentences(line)).split()) == "".join(line.split())
