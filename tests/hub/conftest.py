"""A tokenizer, and exports of small joint models."""

import hashlib
from pathlib import Path

import pytest
from hub_models import FACTS, LETTERS, WORDS, Exported, make_config, make_model

from electra_ds.data.tokenizer import WordPieceSettings, save_files, tokenizer_files, wordpiece
from electra_ds.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from electra_ds.hub.export import export_state


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokens = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    settings = WordPieceSettings(lowercase=True, strip_accents=False)
    save_files(tokenizer_files(wordpiece(vocabulary, settings), settings), folder)
    return folder


@pytest.fixture(scope="session")
def vocab(tokenizer_folder) -> Vocabulary:
    from tokenizers import Tokenizer

    content = (tokenizer_folder / "tokenizer.json").read_bytes()
    size = Tokenizer.from_str(content.decode()).get_vocab_size()
    found = Vocabulary(size, 0, 1, 2, 3, 4, hashlib.sha256(content).hexdigest())
    assert found.padded_size > found.size, "the tests want padding rows that could leak"
    return found


@pytest.fixture(scope="session")
def exported(tmp_path_factory, tokenizer_folder, vocab):
    """Return the export of a model of :func:`make_config`'s settings; made once for each."""
    known: dict[tuple, Exported] = {}

    def make(**settings) -> Exported:
        key = tuple(sorted(settings.items()))
        if key not in known:
            config = make_config(**settings)
            model = make_model(config, vocab)
            folder = tmp_path_factory.mktemp("export") / "out"
            export_state(model.state_dict(), config, vocab, tokenizer_folder, folder, FACTS)
            known[key] = Exported(model, config, folder)
        return known[key]

    return make


@pytest.fixture(autouse=True)
def own_module_cache(tmp_path, monkeypatch):
    """Modelling files that transformers copies before running them stay out of the user's cache."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf_modules"))
