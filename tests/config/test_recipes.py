"""The shipped recipes against the published hyper-parameters, and what the objectives need."""

import pytest

from electra_ds.config.layers import read_yaml
from electra_ds.config.loading import flatten, load_config
from electra_ds.config.recipes import RECIPES, describe_recipe, recipe_names
from electra_ds.config.shapes import EncoderShape, generator_shape

OBJECTIVES = ("mlm", "electra", "electra_rel", "hp_loss", "hp_dist")
PUBLISHED_SIZES = ("small", "base", "large")

# configure_pretraining.py of the reference implementation and its comments; mlm: full-size encoder.
SIZES = {
    "small": {
        "model.layers": 12,
        "model.hidden": 256,
        "model.ffn": 1024,
        "model.heads": 4,
        "model.embedding": 128,
        "data.mask_prob": 0.15,
        "data.seq_len": 128,
        "optimizer.lr": 5e-4,
        "train.batch": 128,
        "train.steps": 1_000_000,
    },
    "base": {
        "model.layers": 12,
        "model.hidden": 768,
        "model.ffn": 3072,
        "model.heads": 12,
        "model.embedding": 768,
        "data.mask_prob": 0.15,
        "data.seq_len": 512,
        "optimizer.lr": 2e-4,
        "train.batch": 256,
        "train.steps": 766_000,
    },
    "large": {
        "model.layers": 24,
        "model.hidden": 1024,
        "model.ffn": 4096,
        "model.heads": 16,
        "model.embedding": 1024,
        "data.mask_prob": 0.25,
        "data.seq_len": 512,
        "optimizer.lr": 2e-4,
        "train.batch": 2048,
        "train.steps": 400_000,
    },
}
SHARED = {
    "model.max_positions": 512,
    "model.dropout": 0.1,
    "model.init_std": 0.02,
    "model.relative_init": "zero",
    "model.embedding_sharing": "shared",
    "objective.mlm_weight": 1.0,
    "objective.rtd_weight": 50.0,
    "objective.temperature": 1.0,
    "optimizer.schedule": "linear",
    "optimizer.warmup_steps": 10_000,
    "optimizer.weight_decay": 0.01,
    "optimizer.betas": (0.9, 0.999),
    "optimizer.eps": 1e-6,
    "optimizer.bias_correction": False,
    "optimizer.clip": 1.0,
}
GENERATORS = {
    "small": EncoderShape(layers=12, hidden=64, heads=1, ffn=256),
    "base": EncoderShape(layers=12, hidden=256, heads=4, ffn=1024),
    "large": EncoderShape(layers=24, hidden=256, heads=4, ffn=1024),
}


def test_every_size_has_every_objective():
    expected = {f"{size}_{name}" for size in ("tiny", *PUBLISHED_SIZES) for name in OBJECTIVES}
    assert set(recipe_names()) == expected | {"small_hp_dist_abs"}


@pytest.mark.parametrize("name", [name for name in recipe_names() if not name.startswith("tiny")])
def test_published_hyper_parameters(name):
    size = name.split("_")[0]
    expected = {**SHARED, **SIZES[size]}
    if name == "small_mlm":
        expected["train.steps"] = 1_500_000  # the same compute as small_electra
    settings = flatten(load_config(name))
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize("name", [name for name in recipe_names() if not name.startswith("tiny")])
def test_generator_sizes(name):
    config = load_config(name)
    size = name.split("_")[0]
    if name.endswith("_mlm"):
        model = config.model
        assert generator_shape(config) == EncoderShape(model.layers, model.hidden, model.heads, model.ffn)
    else:
        assert generator_shape(config) == GENERATORS[size]


@pytest.mark.parametrize("name", recipe_names())
def test_objective_positions_and_focal_factor_follow_their_paper(name):
    config = load_config(name)
    objective = name.split("_", 1)[1].removesuffix("_rel").removesuffix("_abs")
    assert config.objective.name == objective
    assert config.objective.focal_gamma == (1.0 if objective.startswith("hp_") else 0.0)
    absolute = name.endswith(("_mlm", "_electra", "_abs")) and name != "tiny_mlm"
    assert config.model.positions == ("absolute" if absolute else "both")
    if name.startswith("tiny") and not absolute:
        assert config.model.relative_init == "local"


def test_tiny_recipes_are_for_two_cores():
    settings = flatten(load_config("tiny_hp_dist"))
    expected = {
        "data.seq_len": 64,
        "model.layers": 4,
        "model.hidden": 128,
        "model.heads": 2,
        "model.ffn": 512,
        "model.embedding": 128,
        "model.max_positions": 128,
        "model.dropout": 0.0,
        "model.init_std": 0.05,
        "optimizer.lr": 1e-3,
        "optimizer.warmup_steps": 100,
        "optimizer.bias_correction": True,
        "train.batch": 32,
        "train.steps": 2000,
        "train.log_every": 20,
        "train.eval_every": 500,
        "train.checkpoint_every": 500,
        "train.keep": 2,
    }
    assert {key: settings[key] for key in expected} == expected
    assert generator_shape(load_config("tiny_hp_dist")) == EncoderShape(4, 64, 1, 256)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_short_and_says_what_it_is(name):
    text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert text.startswith("# ")
    assert 20 < len(describe_recipe(name)) <= 120
    assert "#" not in describe_recipe(name)


def written_keys(tree, prefix=""):
    """The dotted name of every leaf of a recipe's tree."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from written_keys(value, f"{prefix}{key}.")
        else:
            yield prefix + key


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_that_extends_another_repeats_nothing(name):
    """What a child writes differs from what its parent gives, so that no line is dead."""
    tree = read_yaml(RECIPES / f"{name}.yaml")
    parent = tree.pop("extends", None)
    if parent is None:
        return
    before = flatten(load_config(parent))
    after = flatten(load_config(name))
    assert [key for key in written_keys(tree) if before[key] == after[key]] == []
