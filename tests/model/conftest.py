"""Small models and random batches. No network, no data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from electra_ds.config.schema import Config, DataConfig, GeneratorConfig, ModelConfig
from electra_ds.data.batch import Batch
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model.context import StepContext

VOCAB = Vocabulary(size=70, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, sha256="")
TINY = ModelConfig(
    layers=2,
    hidden=16,
    heads=2,
    ffn=32,
    embedding=8,
    max_positions=32,
    dropout=0.0,
    init_std=0.2,  # so that a network of this size has something to say
    generator=GeneratorConfig(width=0.5, depth=1.0),
)


def with_setting(config: Config, key: str, value: Any) -> Config:
    """Return the config with one dotted key changed."""
    head, _, rest = key.partition(".")
    if not rest:
        return replace(config, **{head: value})
    return replace(config, **{head: with_setting(getattr(config, head), rest, value)})


def make_config(name: str, **settings: Any) -> Config:
    """Return a tiny config; keyword names are dotted keys with ``__`` for the dot."""
    config = Config(model=TINY, data=DataConfig(seq_len=16))
    config = with_setting(config, "objective.name", name)
    for key, value in settings.items():
        config = with_setting(config, key.replace("__", "."), value)
    return config


def make_batch(
    seed: int = 0, rows: int = 4, length: int = 16, slots: int = 3, used: int | None = None, vocab: int = 70
) -> Batch:
    """Return full rows of one example; the last slots of each row are unused where ``used`` < ``slots``."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, vocab, (rows, length), generator=rng)
    ids[:, 0], ids[:, -1] = 2, 3
    order = [torch.randperm(length - 2, generator=rng)[:slots] + 1 for _ in range(rows)]
    positions = torch.stack(order)
    weights = torch.ones(rows, slots)
    used = slots if used is None else used
    positions[:, used:] = 0
    weights[:, used:] = 0
    return Batch(
        input_ids=ids,
        segments=torch.ones_like(ids),
        position_ids=torch.arange(length).repeat(rows, 1),
        token_type_ids=torch.zeros_like(ids),
        masked_positions=positions,
        masked_weights=weights,
        draws=torch.rand(rows, slots, generator=rng),
        needs_mask=False,
        num_tokens=rows * length,
        num_masked=rows * used,
    )


def make_context(batch: Batch, step: int = 0, **fields: Any) -> StepContext:
    """Return the context of a step whose global batch is this batch."""
    return StepContext(step, float(batch.num_masked), float(batch.num_tokens), **fields)


@pytest.fixture
def vocab() -> Vocabulary:
    return VOCAB


@pytest.fixture
def config() -> Callable[..., Config]:
    return make_config


@pytest.fixture
def batch() -> Callable[..., Batch]:
    return make_batch


@pytest.fixture
def context() -> Callable[..., StepContext]:
    return make_context


@pytest.fixture
def setting() -> Callable[[Config, str, Any], Config]:
    return with_setting
