"""Small joint models with weights far from their start, whose exports the tests of this room look at."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

from electra_ds.config.schema import Config, GeneratorConfig, ModelConfig, ObjectiveConfig
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.hub.card import CardFacts
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
