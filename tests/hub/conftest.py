"""A tokenizer, small joint models with weights far from their start, and their exports."""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from electra_ds.config.schema import Config, GeneratorConfig, ModelConfig, ObjectiveConfig
from electra_ds.data.tokenizer import WordPieceSettings, save_files, tokenizer_files, wordpiece
from electra_ds.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from electra_ds.hub.card import CardFacts
from electra_ds.hub.export import export_state
from electra_ds.model.build import build_model
from electra_ds.model.objectives import JointModel

LETTERS = "abcdefghijklmnopqrstuvwxyzäß.,0123456789"
WORDS = ("the", "chef", "ate", "meal", "cooked", "##ed", "##ing", "我", "é")
MAX_POSITIONS = 160
FACTS = CardFacts(
    run="tiny-run",
    step=1234,
    license="apache-2.0",
    provenance={"source": "made up", "licence": "CC0-1.0"},
    counts={"tokens": 4321},
    metrics={"loss/total": 12.5, "eval/discriminator/auc": 0.71},
)


@dataclass
class Exported:
    """A joint model and where it was exported to."""

    model: JointModel
    config: Config
    folder: Path

    @property
    def discriminator(self) -> Path:
        return self.folder / "discriminator"

    @property
    def generator(self) -> Path:
        return self.folder / "generator"


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


def make_config(positions="absolute", sharing="shared", embedding=16, objective="electra") -> Config:
    model = ModelConfig(
        layers=2,
        hidden=32,
        heads=4,
        ffn=48,
        embedding=embedding,
        max_positions=MAX_POSITIONS,
        positions=positions,
        embedding_sharing=sharing,
        generator=GeneratorConfig(width=0.5, depth=0.5),
    )
    return dataclasses.replace(Config(), model=model, objective=ObjectiveConfig(name=objective))


def make_model(config: Config, vocab: Vocabulary) -> JointModel:
    """A model all of whose parameters, biases and deltas included, matter; padding rows are wild."""
    model = build_model(config, vocab).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise, alpha=0.5 if "relative" in name else 0.15)
        for parameter in model.parameters():
            if parameter.shape[0] == vocab.padded_size:
                parameter[vocab.size :] = 1e4
    return model


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
