"""What the objectives teach to whom, and how hardness prediction draws."""

import pytest
import torch

from electra_ds.model.build import build_model
from electra_ds.model.context import StepContext
from electra_ds.model.objectives import OBJECTIVES

HARD = ["hp_loss", "hp_dist"]
REPLACING = ["electra", *HARD]


def trained_parts(model, batch, context) -> set[str]:
    """Return the names of the parameters that get a gradient other than zero."""
    model.zero_grad()
    model(batch, context).loss.backward()
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}


def parts_of(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def only(loss: str) -> dict[str, float]:
    """Return settings under which one loss alone is left."""
    weights = {"objective__mlm_weight": 0.0, "objective__rtd_weight": 0.0, "objective__hp__weight": 0.0}
    key = {"mlm": "objective__mlm_weight", "rtd": "objective__rtd_weight", "hp": "objective__hp__weight"}[
        loss
    ]
    return weights | {key: 1.0}


def words_drawn(model, batch, context) -> torch.Tensor:
    """Return the words (N,) that a step puts into the slots."""
    seen = []
    detect = model.detect
    model.detect = lambda rows, slots, words: seen.append(words) or detect(rows, slots, words)
    model(batch, context)
    del model.detect
    return seen[0]


@pytest.mark.parametrize("sharing", ["shared", "none", "gdes"])
@pytest.mark.parametrize("name", REPLACING)
def test_the_discriminators_loss_trains_no_generator(name, sharing, config, vocab, batch, context):
    settings = only("rtd") | {"model__embedding_sharing": sharing, "model__positions": "both"}
    rows = batch()
    names = trained_parts(build_model(config(name, **settings), vocab), rows, context(rows))
    expected = {
        "shared": {"embeddings", "discriminator", "rtd_head"},
        "none": {"discriminator_embeddings", "discriminator", "rtd_head"},
        "gdes": {"embeddings", "discriminator_embeddings", "discriminator", "rtd_head"},
    }
    assert parts_of(names) == expected[sharing]
    if sharing == "gdes":
        assert not names & {"embeddings.word.weight", "embeddings.position.weight"}
        assert {"discriminator_embeddings.word_delta", "discriminator_embeddings.position_delta"} <= names


def test_gradient_disentangled_deltas_start_at_zero(config, vocab, batch, context):
    shared = build_model(config("electra"), vocab)
    deltas = build_model(config("electra", model__embedding_sharing="gdes"), vocab)
    assert all((p == 0).all() for p in deltas.discriminator_embeddings.parameters())
    deltas.load_state_dict(shared.state_dict(), strict=False)
    rows = batch()
    assert torch.equal(shared(rows, context(rows)).loss, deltas(rows, context(rows)).loss)
    deltas.discriminator_embeddings.word_delta.data += 0.1 * torch.randn(128, 8)
    assert not torch.equal(shared(rows, context(rows)).loss, deltas(rows, context(rows)).loss)


@pytest.mark.parametrize("name", REPLACING)
def test_the_generators_loss_trains_no_discriminator(name, config, vocab, batch, context):
    rows = batch()
    model = build_model(config(name, **only("mlm")), vocab)
    assert parts_of(trained_parts(model, rows, context(rows))) == {"embeddings", "generator", "mlm_head"}


@pytest.mark.parametrize("name", HARD)
def test_the_sampling_loss_trains_its_head_and_the_encoder(name, config, vocab, batch, context):
    rows = batch()
    free = config(name, **only("hp"), objective__hp__head="independent")
    parts = parts_of(trained_parts(build_model(free, vocab), rows, context(rows)))
    assert parts == {"embeddings", "generator", "sampling_head"}
    cut = config(name, **only("hp"), objective__hp__head="independent", objective__hp__detach_encoder=True)
    assert parts_of(trained_parts(build_model(cut, vocab), rows, context(rows))) == {"sampling_head"}


def test_a_residual_heads_gradient_stays_out_of_the_mlm_head(config, vocab, batch, context):
    rows = batch()
    model = build_model(config("hp_dist", **only("hp")), vocab)
    # at first only the correction's last layer and bias can learn: all else is multiplied by zero
    assert trained_parts(model, rows, context(rows)) == {
        "sampling_head.output.weight",
        "sampling_head.output.bias",
        "sampling_head.bias",
    }
    torch.nn.init.normal_(model.sampling_head.output.weight)
    assert "mlm_head" not in parts_of(trained_parts(model, rows, context(rows)))


@pytest.mark.parametrize("head", ["residual", "copy", "independent"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_p_s_is_p_g_at_first(head, temperature, config, vocab, batch, context):
    rows = batch(rows=8)
    settings = {"objective__temperature": temperature}
    plain = build_model(config("electra", **settings), vocab)
    model = build_model(config("hp_dist", objective__hp__head=head, **settings), vocab)
    model.load_state_dict(plain.state_dict(), strict=False)
    if head == "copy":
        model.sampling_head.load_state_dict(model.mlm_head.state_dict())
    same = torch.equal(words_drawn(model, rows, context(rows)), words_drawn(plain, rows, context(rows)))
    tags = model.tags(model(rows, context(rows)).sums)
    starts_there = head == "residual" or (head == "copy" and temperature == 1)
    assert same == starts_there
    assert (abs(tags["sampling/effective_sample_size"] - 1) < 1e-6) == starts_there


def test_a_copied_head_is_equal_after_building(config, vocab):
    model = build_model(config("hp_dist", objective__hp__head="copy"), vocab)
    for key, value in model.mlm_head.state_dict().items():
        assert torch.equal(model.sampling_head.state_dict()[key], value)


@pytest.mark.parametrize("name", HARD)
def test_words_come_from_p_g_before_the_start_and_in_evaluation(name, config, vocab, batch, context):
    rows = batch(rows=16)
    settings = {"objective__hp__head": "independent", "objective__hp__start_step": 3}
    model = build_model(config(name, **settings), vocab)
    with torch.no_grad():  # make the head have strong opinions
        for parameter in model.sampling_head.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    plain = build_model(config("electra"), vocab)
    plain.load_state_dict(model.state_dict(), strict=False)
    from_generator = words_drawn(plain, rows, context(rows))
    assert torch.equal(words_drawn(model, rows, context(rows, step=2)), from_generator)
    assert not torch.equal(words_drawn(model, rows, context(rows, step=3)), from_generator)
    evaluation = context(rows, step=3, proposal="generator")
    assert torch.equal(words_drawn(model, rows, evaluation), from_generator)
    early = model(rows, context(rows, step=0))
    assert early.sums["weight"] == rows.num_masked
    assert early.sums["loss_hp"] > 0


@pytest.mark.parametrize("name", REPLACING)
def test_sampling_without_dropout_does_not_see_it(name, config, vocab, batch, context):
    rows = batch(rows=16)
    drawn = {}
    for with_dropout in (True, False):
        settings = {"model__dropout": 0.4, "objective__sample_with_dropout": with_dropout}
        model = build_model(config(name, **settings), vocab)
        found = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            found.append(words_drawn(model, rows, context(rows)))
        drawn[with_dropout] = found
    assert not torch.equal(*drawn[True])
    assert torch.equal(*drawn[False])
    assert torch.equal(words_drawn(model.eval(), rows, context(rows)), drawn[False][0])


@pytest.mark.parametrize("name", REPLACING)
def test_disallow_correct_never_draws_the_original(name, config, vocab, batch, context):
    rows = batch(rows=32)
    settings = {"objective__disallow_correct": True, "objective__hp__head": "copy"}
    model = build_model(config(name, **settings), vocab)
    out = model(rows, context(rows))
    assert out.sums["sampled_original"] == 0
    assert out.sums["replaced"] == rows.num_masked


def test_hp_dist_loss_divides_by_the_carried_mean(config, vocab, batch, context):
    rows = batch()
    running = build_model(config("hp_dist"), vocab)
    fixed = build_model(config("hp_dist", objective__hp__normalizer="one"), vocab)
    first = running(rows, context(rows))
    carried = {"hp_z": torch.tensor(2.0), "hp_weight": torch.tensor(1.0)}
    later = context(rows, carried=carried)
    torch.testing.assert_close(running(rows, later).sums["loss_hp"], first.sums["loss_hp"] / 2)
    torch.testing.assert_close(fixed(rows, later).sums["loss_hp"], first.sums["loss_hp"])


def test_carry_is_the_mean_of_the_clipped_weights_times_the_loss(config, vocab, batch, context):
    rows = batch(rows=16)
    settings = {"objective__hp__head": "independent", "objective__hp__weight_clip": 1.2}
    model = build_model(config("hp_dist", **settings), vocab)
    out = model(rows, context(rows))
    carried = model.carry(out.sums)
    assert 0 < model.tags(out.sums)["sampling/clipped"] < 1
    assert carried["hp_z"].item() == pytest.approx(
        (out.sums["weighted_hardness"] / rows.num_masked).item(), rel=1e-6
    )
    assert carried["hp_weight"].item() < 1.2
    assert model.initial_carry() == {"hp_z": 1, "hp_weight": 1}
    empty = {key: torch.zeros_like(value) for key, value in out.sums.items()}
    assert model.carry(empty) == {"hp_z": 1, "hp_weight": 1}


def test_importance_weights_multiply_the_masked_tokens_alone(config, vocab, batch, context):
    rows = batch(rows=16)
    settings = {"objective__hp__head": "independent", "objective__importance_weighting": True}
    weighted = build_model(config("hp_dist", **settings), vocab)
    plain = build_model(config("hp_dist", objective__hp__head="independent"), vocab)
    out = plain(rows, context(rows))
    masked = out.sums["hardness"]
    elsewhere = out.sums["loss_rtd"] - masked
    for mean in (1.0, 0.5):
        carried = {"hp_z": torch.tensor(1.0), "hp_weight": torch.tensor(mean)}
        found = weighted(rows, context(rows, carried=carried)).sums
        expected = elsewhere + out.sums["weighted_hardness"] / mean
        torch.testing.assert_close(found["loss_rtd"], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found["hardness"], masked)


def test_hp_loss_pulls_its_score_to_the_discriminators_answer(config, vocab, batch, context):
    """A few steps on the sampling loss alone, with the words fixed: the estimate approaches L_D."""
    rows = batch(rows=8)
    settings = only("hp") | {"objective__hp__detach_encoder": True, "objective__hp__start_step": 1000}
    model = build_model(config("hp_loss", **settings), vocab)
    with torch.no_grad():  # a discriminator with something to say
        model.rtd_head.output.weight.mul_(3)
    optimizer = torch.optim.Adam(model.sampling_head.parameters(), lr=0.02)
    correlations = []
    for _ in range(80):
        optimizer.zero_grad()
        out = model(rows, context(rows))
        out.loss.backward()
        optimizer.step()
        correlations.append(model.tags(out.sums)["sampling/hardness_correlation"])
    assert abs(correlations[0]) < 0.6
    assert correlations[-1] > 0.9


def test_hp_loss_knows_that_the_original_word_counts_as_original(config, vocab, batch, context):
    """A head sure that everything will be called replaced finds the original word alone hard."""
    rows = batch(rows=16)
    for correct_is, share in (("original", 1.0), ("replaced", 0.0)):
        model = build_model(config("hp_loss", objective__correct_is=correct_is), vocab)
        with torch.no_grad():
            model.sampling_head.bias.fill_(-30.0)
        sums = model(rows, context(rows)).sums
        assert abs(sums["sampled_original"] / rows.num_masked - share) < 0.2


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_loss_is_the_sum_of_its_tags(name, config, vocab, batch, context):
    rows = batch()
    weights = {"objective__mlm_weight": 0.7, "objective__rtd_weight": 11.0, "objective__hp__weight": 0.3}
    model = build_model(config(name, **weights), vocab)
    out = model(rows, context(rows))
    tags = model.tags(out.sums)
    assert out.loss.dtype == torch.float32
    assert tags["loss/total"] == pytest.approx(out.loss.item(), rel=1e-5)
    assert all(not value.requires_grad and value.dtype == torch.float64 for value in out.sums.values())
    expected = {"mlm"} | ({"rtd"} if name != "mlm" else set()) | ({"hp"} if name in HARD else set())
    assert {tag[5:] for tag in tags if tag.startswith("loss/")} == expected | {"total"}
    twice = model(rows, StepContext(0, 2.0 * rows.num_masked, torch.tensor(2 * rows.num_tokens)))
    torch.testing.assert_close(twice.loss * 2, out.loss)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_low_precision_agrees_with_fp32(name, config, vocab, batch, context):
    rows = batch(rows=16)
    settings = {"model__positions": "both", "objective__hp__start_step": 5, "model__init_std": 0.1}
    model = build_model(config(name, **settings), vocab)
    rows.needs_mask = True
    exact = model(rows, context(rows)).sums["loss_mlm"].item()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(rows, context(rows))
    mixed.loss.backward()
    assert mixed.loss.dtype == torch.float32
    assert mixed.sums["loss_mlm"].item() == pytest.approx(exact, rel=0.01)
    low = model.bfloat16()(rows, context(rows))
    assert low.sums["loss_mlm"].item() == pytest.approx(exact, rel=0.01)


def test_networks_by_name(config, vocab):
    for name in OBJECTIVES:
        networks = build_model(config(name), vocab).networks()
        assert set(networks) == ({"generator"} if name == "mlm" else {"generator", "discriminator"})
        assert networks["generator"].shape.hidden == (16 if name == "mlm" else 8)
