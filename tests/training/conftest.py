"""Shards made from generated text."""

import random
from pathlib import Path

import pytest

from electra_ds.cli import main as cli


@pytest.fixture(scope="session")
def shards(tmp_path_factory) -> Path:
    """Shards, with a held-out part, of 400 generated documents."""
    folder = tmp_path_factory.mktemp("training-data")
    random_words = random.Random(5)
    words = ["".join(random_words.choices("abcdefghij", k=random_words.randint(2, 7))) for _ in range(300)]
    documents = []
    for _ in range(400):
        sentences = [
            " ".join(random_words.choices(words, k=random_words.randint(4, 14))) + "." for _ in range(6)
        ]
        documents.append(" ".join(sentences))
    text = folder / "text.txt"
    text.write_text("\n\n".join(documents), encoding="utf-8")
    tokenizer = ["tokenizer", "--input", str(text), "--vocab-size", "256", "--output", str(folder / "tok")]
    assert cli(tokenizer) == 0
    prepare = ["prepare", "--input", str(text), "--tokenizer", str(folder / "tok")]
    assert cli([*prepare, "--output", str(folder / "shards"), "--held-out", "0.1"]) == 0
    return folder / "shards"
