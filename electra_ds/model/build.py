"""From a configuration and a vocabulary to a joint model."""

import torch

from electra_ds.config.errors import InputError, nearest
from electra_ds.config.schema import Config
from electra_ds.config.shapes import EncoderShape, discriminator_shape, generator_shape
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model.initialization import initialize
from electra_ds.model.objectives import OBJECTIVES, JointModel


def build_model(config: Config, vocab: Vocabulary) -> JointModel:
    """Return the objective's module with initial weights that depend on ``config.seed`` alone.

    The global random state is left as it was. Raises :class:`InputError` where settings contradict each other
    or the vocabulary. Under ``torch.device("meta")`` no memory is taken.
    """
    check_model(config, vocab)
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(config.seed)
        model = OBJECTIVES[config.objective.name](config, vocab)
        initialize(model, config.model)
    return model


def check_model(config: Config, vocab: Vocabulary) -> None:
    """Raise :class:`InputError` naming the first setting with which no model can be built."""
    name = config.objective.name
    if name not in OBJECTIVES:
        raise InputError(
            f"objective.name={name!r} is unknown{nearest(name, OBJECTIVES)}: "
            f"use one of {', '.join(OBJECTIVES)}"
        )
    _check_vocabulary(vocab)
    _check_shape("model", discriminator_shape(config))
    _check_shape("model.generator", generator_shape(config))
    _check_ranges(config)
    model, length = config.model, config.data.seq_len
    if model.positions != "relative" and length > model.max_positions:
        raise InputError(
            f"data.seq_len={length} is beyond the position table of {model.max_positions} rows: lower it, "
            f"raise model.max_positions, or set model.positions=relative"
        )
    if config.objective.importance_weighting and not name.startswith("hp_"):
        raise InputError(
            f"objective.importance_weighting=true changes nothing with objective.name={name}, which draws "
            f"from the generator itself: remove it, or use hp_loss or hp_dist"
        )


def _check_vocabulary(vocab: Vocabulary) -> None:
    ids = {
        "pad": vocab.pad_id,
        "unk": vocab.unk_id,
        "cls": vocab.cls_id,
        "sep": vocab.sep_id,
        "mask": vocab.mask_id,
    }
    for token, number in ids.items():
        if not 0 <= number < vocab.size:
            raise InputError(
                f"the vocabulary has {vocab.size} entries but [{token.upper()}] is number {number}: "
                f"the tokenizer and the shards do not belong together; run prepare again"
            )
    if len(set(ids.values())) != len(ids):
        raise InputError(f"the special tokens share ids ({ids}): train the tokenizer again")


def _check_shape(key: str, shape: EncoderShape) -> None:
    if shape.hidden % shape.heads:
        raise InputError(
            f"{key}: {shape.heads} heads do not divide a hidden size of {shape.hidden}; "
            f"change heads, hidden or the generator's width"
        )


def _check_ranges(config: Config) -> None:
    model, objective = config.model, config.objective
    positive = {
        "model.layers": model.layers,
        "model.hidden": model.hidden,
        "model.embedding": model.embedding,
        "model.init_std": model.init_std,
        "objective.temperature": objective.temperature,
        "objective.hp.weight_clip": objective.hp.weight_clip,
    }
    for key, value in positive.items():
        if not value > 0:
            raise InputError(f"{key}={value} must be above 0")
    if not 0 <= model.dropout < 1:
        raise InputError(f"model.dropout={model.dropout} must be at least 0 and below 1")
    if objective.focal_gamma < 0:
        raise InputError(f"objective.focal_gamma={objective.focal_gamma} must not be negative")
