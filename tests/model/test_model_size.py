"""Parameter counts and operations against the published sizes."""

from dataclasses import replace

import pytest

from electra_ds.config.schema import Config, DataConfig, GeneratorConfig, ModelConfig
from electra_ds.config.shapes import EncoderShape, generator_shape
from electra_ds.model.size import count_parameters, flops_per_token

VOCAB_SIZE = 30522
THIRD = GeneratorConfig(width=1 / 3)
SIZES = {
    "small": Config(),
    "base": Config(
        model=ModelConfig(hidden=768, heads=12, ffn=3072, embedding=768, generator=THIRD),
        data=DataConfig(seq_len=512),
    ),
    "large": Config(
        model=ModelConfig(layers=24, hidden=1024, heads=16, ffn=4096, embedding=1024),
        data=DataConfig(seq_len=512, mask_prob=0.25),
    ),
}


@pytest.mark.parametrize(
    ("size", "encoder", "generator"), [("small", 13.48, 0.67), ("base", 108.9, 10.1), ("large", 334.1, 19.7)]
)
def test_parameters_in_millions(size, encoder, generator):
    config = SIZES[size]
    counts = count_parameters(config, VOCAB_SIZE)
    word_table = 30528 * config.model.embedding
    assert (counts["embeddings"] + counts["discriminator"]) / 1e6 == pytest.approx(encoder, rel=6e-4)
    # the generator's own encoder with positions, types and norm, without the word table
    found = (counts["embeddings"] - word_table + counts["generator"]) / 1e6
    assert found == pytest.approx(generator, rel=8e-3)
    assert counts["total"] == sum(count for name, count in counts.items() if name != "total")


@pytest.mark.parametrize(("size", "giga"), [("small", 0.070), ("base", 0.668), ("large", 2.17)])
def test_operations_per_token(size, giga):
    assert flops_per_token(SIZES[size], VOCAB_SIZE) / 1e9 == pytest.approx(giga, rel=5e-3)


def test_hardness_prediction_costs_little_and_a_second_pass_something(setting):
    plain = flops_per_token(SIZES["base"], VOCAB_SIZE)
    for name in ("hp_loss", "hp_dist"):
        cost = flops_per_token(setting(SIZES["base"], "objective.name", name), VOCAB_SIZE)
        assert plain < cost < 1.06 * plain
    twice = setting(SIZES["base"], "objective.sample_with_dropout", False)
    assert plain < flops_per_token(twice, VOCAB_SIZE) < 1.1 * plain


def test_generator_shape_is_rounded_and_full_size_for_mlm(setting):
    assert generator_shape(SIZES["base"]) == EncoderShape(layers=12, hidden=256, heads=4, ffn=1024)
    blunt = setting(SIZES["base"], "model.generator.width", 0.333)
    assert generator_shape(blunt) == EncoderShape(layers=12, hidden=256, heads=4, ffn=1023)
    assert generator_shape(SIZES["small"]) == EncoderShape(layers=12, hidden=64, heads=1, ffn=256)
    shallow = setting(SIZES["small"], "model.generator.depth", 0.01)
    assert generator_shape(shallow).layers == 1
    mlm = setting(SIZES["small"], "objective.name", "mlm")
    assert generator_shape(mlm) == EncoderShape(layers=12, hidden=256, heads=4, ffn=1024)


def test_sharing_changes_the_count_by_whole_tables():
    base = replace(SIZES["small"], model=replace(SIZES["small"].model, embedding_sharing="shared"))
    shared = count_parameters(base, VOCAB_SIZE)["total"]
    own = replace(base, model=replace(base.model, embedding_sharing="none"))
    deltas = replace(base, model=replace(base.model, embedding_sharing="gdes"))
    rows = 30528 + 512
    assert count_parameters(own, VOCAB_SIZE)["total"] - shared == (rows + 2 + 2) * 128
    assert count_parameters(deltas, VOCAB_SIZE)["total"] - shared == rows * 128
