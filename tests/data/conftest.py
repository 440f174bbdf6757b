"""Text, tokenizers and shards that the tests of the data room share; everything is made by the tests."""

import random
from pathlib import Path

import pytest

from hypothesis import settings

from electra_ds.data.corpus import CorpusOptions
from electra_ds.data.encoding import TextEncoder, load_encoder
from electra_ds.data.inputs import find_inputs
from electra_ds.data.prepare import PrepareOptions, prepare
from electra_ds.data.tokenizer import WordPieceSettings, save_files, tokenizer_files
from electra_ds.data.tokenizer_training import train_tokenizer

# Machines that run tests are shared and slow at times; a slow example is no fault.
settings.register_profile("data", deadline=None, max_examples=60)
settings.load_profile("data")

SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


def make_documents(number: int, seed: int = 7) -> list[str]:
    """Documents of 1 to 40 lines whose first word is a marker that occurs nowhere else."""
    rng = random.Random(seed)
    documents = []
    for document in range(number):
        lines = [
            " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 25)))
            for _ in range(rng.randint(1, 40))
        ]
        documents.append(f"{10_000 + document} " + "\n".join(lines))
    return documents


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n\n".join(make_documents(200)) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer_folder(corpus_file, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "tok"
    settings = WordPieceSettings()
    tokenizer = train_tokenizer(find_inputs([str(corpus_file)]), CorpusOptions(), settings, 400)
    save_files(tokenizer_files(tokenizer, settings), folder)
    return folder


@pytest.fixture(scope="session")
def encoder(tokenizer_folder) -> TextEncoder:
    return load_encoder(tokenizer_folder)


def write_shards(inputs, encoder: TextEncoder, output: Path, **options) -> Path:
    """Prepare shards with small records; returns the folder."""
    settings = PrepareOptions(**{"record_tokens": 600, **options})
    prepare(find_inputs([str(name) for name in inputs]), encoder, output, settings, {"source": "test"})
    return output


@pytest.fixture(scope="session")
def shards(corpus_file, encoder, tmp_path_factory) -> Path:
    """Few shards, many records: the units of the stream are records."""
    folder = tmp_path_factory.mktemp("few") / "shards"
    return write_shards([corpus_file], encoder, folder, held_out=0.1)


@pytest.fixture(scope="session")
def many_shards(corpus_file, encoder, tmp_path_factory) -> Path:
    """At least as many shards as lanes in the tests: the units of the stream are shards."""
    folder = tmp_path_factory.mktemp("many") / "shards"
    return write_shards([corpus_file], encoder, folder, shard_bytes=12_000)


@pytest.fixture
def text_file(tmp_path):
    """Write bytes or text to a file of the test's folder and return its path."""

    def write(content: bytes | str, name: str = "text.txt") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
