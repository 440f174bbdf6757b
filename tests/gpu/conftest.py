"""Shards for short runs on a GPU, made from generated text."""

import random
from pathlib import Path

import pytest

from electra_ds.cli import main as cli


@pytest.fixture(scope="session")
def gpu_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of 2,000 generated documents in which every word depends on the one before it."""
    folder = tmp_path_factory.mktemp("gpu-data")
    draw = random.Random(11)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(3, 8))) for _ in range(500)]
    followers = {word: draw.sample(words, 4) for word in words}
    documents = []
    for _ in range(2000):
        word, text = draw.choice(words), []
        for _ in range(80):
            word = draw.choice(followers[word])
            text.append(word)
        documents.append(" ".join(text) + ".")
    text_file = folder / "text.txt"
    text_file.write_text("\n\n".join(documents), encoding="utf-8")
    tokenizer, shards = str(folder / "tokenizer"), folder / "shards"
    assert cli(["tokenizer", "--input", str(text_file), "--vocab-size", "1024", "--output", tokenizer]) == 0
    assert cli(["prepare", "--input", str(text_file), "--tokenizer", tokenizer, "--output", str(shards)]) == 0
    return shards
