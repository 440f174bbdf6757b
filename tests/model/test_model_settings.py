"""A setting that changes nothing is a fault: each is flipped, and a difference must be seen."""

from dataclasses import fields, is_dataclass

import pytest
import torch

from electra_ds.config.schema import ModelConfig, ObjectiveConfig
from electra_ds.model.build import build_model

# key: (value, objective, settings under which it matters)
ABSOLUTE = {"model__positions": "absolute"}
HEAD = {"objective__hp__head": "independent"}
FLIPS = {
    "model.layers": (3, "mlm", {}),
    "model.hidden": (24, "mlm", {}),
    "model.heads": (4, "mlm", {}),
    "model.ffn": (48, "mlm", {}),
    "model.embedding": (12, "mlm", {}),
    "model.max_positions": (24, "mlm", {}),
    "model.dropout": (0.3, "mlm", {}),
    "model.init_std": (0.3, "mlm", {}),
    "model.positions": ("relative", "mlm", {}),
    "model.relative_init": ("local", "mlm", {"model__positions": "both"}),
    "model.embedding_sharing": ("none", "electra", {}),
    "model.generator.width": (1.0, "electra", {}),
    "model.generator.depth": (0.5, "electra", {}),
    "objective.mlm_weight": (0.5, "electra", {}),
    "objective.rtd_weight": (25.0, "electra", {}),
    "objective.focal_gamma": (1.0, "mlm", {}),
    "objective.temperature": (0.2, "electra", {}),
    "objective.correct_is": ("replaced", "electra", {}),
    "objective.disallow_correct": (True, "electra", {}),
    "objective.importance_weighting": (True, "hp_dist", HEAD),
    "objective.sample_with_dropout": (False, "electra", {"model__dropout": 0.4}),
    "objective.hp.weight": (2.0, "hp_dist", {}),
    "objective.hp.normalizer": ("one", "hp_dist", {}),
    "objective.hp.weight_clip": (1.1, "hp_dist", HEAD),
    "objective.hp.start_step": (9, "hp_dist", HEAD),
    "objective.hp.head": ("copy", "hp_dist", {}),
    "objective.hp.detach_encoder": (True, "hp_dist", HEAD),
}
SINGLE = {"model.arch", "objective.name"}  # one value today; the registry itself


def leaves(prefix, kind):
    for field in fields(kind):
        value = getattr(kind(), field.name)
        if is_dataclass(value):
            yield from leaves(f"{prefix}.{field.name}", type(value))
        else:
            yield f"{prefix}.{field.name}"


def test_every_setting_of_the_model_is_flipped_here():
    known = {*leaves("model", ModelConfig), *leaves("objective", ObjectiveConfig)}
    assert known == FLIPS.keys() | SINGLE


def signature(config, vocab, batch, context):
    """Return shapes, loss, gradients and statistics of a step."""
    model = build_model(config, vocab)
    if config.objective.correct_is == "replaced" or config.objective.name == "electra":
        with torch.no_grad():  # a generator that is often right, so that equal replacements exist
            model.mlm_head.bias[5:9] += 6
    rows = batch(rows=16)
    rows.input_ids[:, 1:-1] = rows.input_ids[:, 1:-1] % 4 + 5
    torch.manual_seed(0)
    carried = {"hp_z": torch.tensor(0.5), "hp_weight": torch.tensor(0.8)}
    out = model(rows, context(rows, step=4, carried=carried))
    out.loss.backward()
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return shapes, out.loss.item(), gradients


@pytest.mark.parametrize("key", FLIPS)
def test_flipping_a_setting_changes_a_step(key, config, vocab, batch, context, setting):
    value, name, settings = FLIPS[key]
    before = config(name, **settings)
    shapes, loss, gradients = signature(before, vocab, batch, context)
    other_shapes, other_loss, other_gradients = signature(setting(before, key, value), vocab, batch, context)
    if shapes != other_shapes:
        return
    same = all(torch.equal(a, b) for a, b in zip(gradients, other_gradients, strict=True))
    assert loss != other_loss or not same


@pytest.mark.parametrize(
    "key", ["objective.hp.weight", "objective.hp.weight_clip", "objective.hp.start_step"]
)
def test_settings_of_both_hardness_objectives_act_in_hp_loss_too(key, config, vocab, batch, context, setting):
    value = 1.01 if key.endswith("clip") else FLIPS[key][0]
    before = config("hp_loss", objective__importance_weighting=True, model__init_std=0.6)
    _, loss, _ = signature(before, vocab, batch, context)
    assert signature(setting(before, key, value), vocab, batch, context)[1] != loss


def test_dropout_zero_is_no_dropout_anywhere(config, vocab, batch, context):
    rows = batch()
    for dropout, same in ((0.0, True), (0.2, False)):
        model = build_model(config("hp_dist", model__dropout=dropout), vocab)
        trained = model(rows, context(rows)).loss
        assert torch.equal(trained, model.eval()(rows, context(rows)).loss) == same


@pytest.mark.parametrize(
    "place", ["embeddings", "discriminator", "generator"], ids=lambda place: f"dropout of {place}"
)
def test_dropout_acts_in_every_part(place, config, vocab, batch, context):
    rows = batch()
    model = build_model(config("electra", model__dropout=0.2), vocab).eval()
    still = model(rows, context(rows)).loss
    getattr(model, place).train()
    assert not torch.equal(model(rows, context(rows)).loss, still)
