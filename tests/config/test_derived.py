"""Batch arithmetic, the length of a run, and shapes."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.config.derived import (
    AUTO_MICRO_BATCH_TOKENS,
    checkpoint_interval,
    solve_batch,
    total_steps,
)
from electra_ds.config.errors import InputError
from electra_ds.config.loading import load_config
from electra_ds.config.schema import Config
from electra_ds.config.shapes import EncoderShape, discriminator_shape, generator_shape


def with_train(**changes) -> Config:
    seq_len = changes.pop("seq_len", 128)
    config = Config()
    return dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, **changes),
        data=dataclasses.replace(config.data, seq_len=seq_len),
    )


@given(st.integers(1, 4096), st.integers(1, 128), st.integers(8, 1024))
def test_auto_solves_exactly_whenever_the_ranks_divide_the_batch(batch, world_size, seq_len):
    config = with_train(batch=batch, seq_len=seq_len)
    if batch % world_size:
        with pytest.raises(InputError) as caught:
            solve_batch(config, world_size)
        assert "\n" not in str(caught.value)
        return
    plan = solve_batch(config, world_size)
    assert plan.batch == batch == plan.micro_batch * plan.accumulation * plan.world_size
    assert plan.world_size == world_size
    assert plan.micro_batch == 1 or plan.micro_batch * seq_len <= AUTO_MICRO_BATCH_TOKENS
    share = batch // world_size
    larger = [rows for rows in range(plan.micro_batch + 1, share + 1) if share % rows == 0]
    assert all(rows * seq_len > AUTO_MICRO_BATCH_TOKENS for rows in larger)


@given(st.integers(1, 512), st.integers(1, 16), st.integers(1, 64))
def test_an_explicit_micro_batch_is_kept_or_refused_with_the_valid_ones(batch, world_size, micro_batch):
    config = with_train(batch=batch, micro_batch=micro_batch)
    if batch % (world_size * micro_batch) == 0:
        plan = solve_batch(config, world_size)
        assert (plan.micro_batch, plan.accumulation) == (micro_batch, batch // world_size // micro_batch)
        return
    with pytest.raises(InputError) as caught:
        solve_batch(config, world_size)
    if batch % world_size == 0:
        offered = [int(word) for word in str(caught.value).rpartition("one of ")[2].split(", ")]
        assert offered
        for valid in offered:
            solve_batch(with_train(batch=batch, micro_batch=valid), world_size)


def test_ranks_that_do_not_divide_the_batch():
    with pytest.raises(InputError) as caught:
        solve_batch(with_train(batch=8), 3)
    assert str(caught.value) == (
        "train.batch=8 cannot be dealt evenly to 3 ranks: use a number of ranks that divides it "
        "(1, 2, 4, 8), or train.batch=6 or 9"
    )
    with pytest.raises(InputError, match=r"train\.batch=2 .* or train\.batch=4$"):
        solve_batch(with_train(batch=2), 4)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_global_batch_stays_the_same_on_any_number_of_ranks(world_size):
    plan = solve_batch(with_train(batch=96, micro_batch=8), world_size)
    assert plan.micro_batch * plan.accumulation * world_size == 96


def test_equation():
    plan = solve_batch(with_train(batch=256, micro_batch=8), 8)
    assert plan.equation == "256 = 8 per rank × 4 accumulation × 8 ranks"
    assert solve_batch(with_train(batch=4), 1).equation == "4 = 4 per rank × 1 accumulation × 1 rank"


@pytest.mark.parametrize(
    ("duration", "steps"),
    [
        (None, 77),
        ("1000000ba", 1_000_000),
        ("5kba", 5000),
        ("1ep", 245),  # 1,000,003 tokens in batches of 32 x 128
        ("40ep", 9766),
        ("0.5ep", 123),
        ("4096tok", 1),
        ("4097tok", 2),
        ("1tok", 1),
        ("30Gtok", 7_324_219),
        ("0.3Mtok", 74),
    ],
)
def test_total_steps(duration, steps):
    config = with_train(steps=77, duration=duration, batch=32)
    assert total_steps(config, tokens_per_epoch=1_000_003) == steps


@given(st.integers(1, 10**15), st.integers(1, 10**6))
def test_a_duration_in_tokens_is_reached_and_not_overshot_by_a_batch(tokens, batch):
    steps = total_steps(with_train(duration=f"{tokens}tok", batch=batch), 1)
    assert steps == math.ceil(tokens / 128 / batch) or abs(steps * batch * 128 - tokens) < batch * 128
    assert (steps - 1) * batch * 128 < tokens <= steps * batch * 128


def test_checkpoint_interval():
    assert checkpoint_interval(with_train(checkpoint_every=500)) == (500, None)
    assert checkpoint_interval(with_train(checkpoint_every="1.5min")) == (None, 90.0)


def test_shapes():
    assert discriminator_shape(load_config("base_electra")) == EncoderShape(12, 768, 12, 3072)
    assert generator_shape(load_config("base_electra")) == EncoderShape(12, 256, 4, 1024)
    half = load_config("base_electra", ["model.generator.depth=1/2", "model.generator.width=1"])
    assert generator_shape(half) == EncoderShape(6, 768, 12, 3072)
    smallest = load_config("tiny_electra", ["model.generator.depth=0.01", "model.generator.width=1/128"])
    assert generator_shape(smallest) == EncoderShape(1, 1, 1, 4)
