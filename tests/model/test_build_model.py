"""Building: initial weights, names, and contradictions."""

from dataclasses import replace

import pytest
import torch

from electra_ds.config.errors import InputError
from electra_ds.config.schema import Config, DataConfig, GeneratorConfig, ModelConfig
from electra_ds.model.build import build_model
from electra_ds.model.initialization import truncated_normal


def test_weights_depend_on_the_seed_alone(config, vocab):
    torch.manual_seed(1)
    first = build_model(config("hp_dist"), vocab).state_dict()
    state = torch.get_rng_state()
    torch.manual_seed(2)
    torch.rand(3)
    second = build_model(config("hp_dist"), vocab).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = build_model(config("hp_dist", seed=2), vocab).state_dict()
    assert not torch.equal(first["embeddings.word.weight"], other["embeddings.word.weight"])
    torch.set_rng_state(state)
    expected = torch.rand(1)
    torch.set_rng_state(state)
    build_model(config("mlm"), vocab)
    assert torch.equal(torch.rand(1), expected)


def test_truncated_normal_has_the_published_shape():
    values = torch.empty(400_000)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        truncated_normal(values, 0.02)
    assert values.abs().max() <= 0.04
    assert values.abs().max() > 0.0399
    assert values.mean().abs() < 1e-4
    assert values.std().item() == pytest.approx(0.02 * 0.8796, rel=5e-3)  # of N(0, 1) cut at 2
    share = (values.abs() < 0.02).float().mean().item()
    assert share == pytest.approx(0.6827 / 0.9545, abs=3e-3)


def test_initial_weights_by_kind(config, vocab):
    settings = {"model__positions": "both", "model__init_std": 0.02, "model__embedding_sharing": "gdes"}
    model = build_model(config("hp_dist", **settings), vocab)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            assert (parameter == 1).all(), name
        elif parameter.dim() == 1 or "relative" in name or "delta" in name or "head.output" in name:
            assert (parameter == 0).all() or name == "rtd_head.output.weight", name
        elif "project" in name:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert 0.5 * bound < parameter.abs().max() <= bound, name
        else:
            assert 0.01 < parameter.abs().max() <= 0.0401, name


def test_parameter_names(config, vocab):
    names = set(build_model(config("hp_loss", model__positions="both"), vocab).state_dict())
    layer = "discriminator.layers.1"
    expected = {"embeddings.word.weight", "embeddings.position.weight", "embeddings.token_type.weight"}
    expected |= {"embeddings.norm.bias", "generator.relative.weight", "discriminator.project.weight"}
    expected |= {f"{layer}.attention.qkv.weight", f"{layer}.attention.output.bias", f"{layer}.up.weight"}
    expected |= {f"{layer}.attention_norm.weight", f"{layer}.down.bias", f"{layer}.output_norm.bias"}
    expected |= {"mlm_head.dense.weight", "mlm_head.norm.weight", "mlm_head.bias", "sampling_head.bias"}
    expected |= {"rtd_head.dense.weight", "rtd_head.output.weight"}
    assert expected <= names
    assert "generator.project.weight" not in names  # widths are equal
    relative = set(build_model(config("electra", model__positions="relative"), vocab).state_dict())
    assert not {name for name in relative if "embeddings.position" in name}
    own = set(build_model(config("electra", model__embedding_sharing="none"), vocab).state_dict())
    assert "discriminator_embeddings.word.weight" in own


def test_the_word_table_is_padded_and_positions_are_as_asked(config, vocab):
    model = build_model(config("electra"), vocab)
    assert model.embeddings.word.weight.shape == (128, 8)
    assert model.embeddings.position.weight.shape == (32, 8)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("objective.name", "elektra", ["elektra", "electra"]),
        ("objective.importance_weighting", True, ["importance_weighting", "electra"]),
        ("objective.temperature", 0.0, ["temperature", "0.0"]),
        ("objective.focal_gamma", -1.0, ["focal_gamma", "-1.0"]),
        ("objective.hp.weight_clip", 0.0, ["weight_clip"]),
        ("model.dropout", 1.0, ["dropout", "1.0"]),
        ("model.heads", 3, ["3 heads", "16"]),
        ("model.generator", GeneratorConfig(width=0.7), ["generator", "heads"]),
        ("data.seq_len", 33, ["33", "32", "max_positions"]),
    ],
)
def test_contradictions_are_one_line(key, value, words, config, vocab, setting):
    bad = setting(config("electra", model__heads=4), key, value)
    with pytest.raises(InputError) as error:
        build_model(bad, vocab)
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_relative_positions_know_no_longest_row(config, vocab, setting):
    build_model(setting(config("electra", model__positions="relative"), "data.seq_len", 4096), vocab)


@pytest.mark.parametrize("change", [{"size": 4}, {"mask_id": 70}, {"unk_id": 0}])
def test_a_vocabulary_that_cannot_be_is_refused(change, config, vocab):
    with pytest.raises(InputError, match=r"\[MASK\]|share ids"):
        build_model(config("electra"), replace(vocab, **change))


def test_a_large_model_takes_no_memory_on_meta(vocab):
    large = ModelConfig(layers=24, hidden=1024, heads=16, ffn=4096, embedding=1024)
    with torch.device("meta"):
        model = build_model(Config(model=large, data=DataConfig(seq_len=512)), vocab)
    assert all(parameter.is_meta for parameter in model.parameters())
