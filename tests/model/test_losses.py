"""Losses by hand and by finite differences; hardness prediction on enumerated vocabularies."""

import math

import pytest
import torch
from torch.nn import functional as F

from electra_ds.model.losses import (
    clipped_weight,
    focal,
    hardness_distribution,
    hardness_regression,
    replaced_token_detection,
)
from electra_ds.model.sampling import generator_weights, hardness_weights, log_prob, scan

WORDS, CONTEXTS = 12, 5


def test_focal_without_gamma_is_the_cross_entropy():
    logits = torch.randn(6, 9)
    target = torch.randint(9, (6,))
    log_p = logits.log_softmax(-1).gather(1, target[:, None])[:, 0]
    torch.testing.assert_close(focal(log_p, 0.0), F.cross_entropy(logits, target, reduction="none"))


@pytest.mark.parametrize(
    ("p", "gamma", "value"), [(0.5, 1, 0.5 * 0.6931472), (0.25, 2, 0.5625 * 1.3862944), (0.9, 0.5, 0.0333181)]
)
def test_focal_by_hand(p, gamma, value):
    assert focal(torch.tensor([math.log(p)]), gamma).item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.7])
def test_focal_differentiates_its_factor_too(gamma):
    log_p = torch.tensor([-0.01, -0.3, -1.0, -5.0, -20.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: focal(x, gamma), (log_p,))


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 4.0])
def test_focal_is_finite_at_certainty(gamma):
    log_p = torch.tensor([0.0, -1e-30, -1e4], requires_grad=True)
    loss = focal(log_p, gamma)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert log_p.grad.isfinite().all()


def test_replaced_token_detection_by_hand():
    loss = replaced_token_detection(torch.tensor([2.0, 2.0]).bfloat16(), torch.tensor([True, False]))
    probability = 1 / (1 + math.exp(-2.0))
    assert loss.tolist() == pytest.approx([-math.log(probability), -math.log(1 - probability)], rel=1e-6)
    assert loss.dtype == torch.float32


def test_hardness_regression_has_its_optimum_where_the_head_agrees():
    """D is the probability of "original": the sigmoid of MINUS the discriminator's logit."""
    logit = torch.tensor([-3.0, 0.5, 2.0])
    score = torch.tensor([0.3, 0.3, 0.3], requires_grad=True)
    loss = hardness_regression(score, logit)
    target = torch.sigmoid(-logit)
    predicted = torch.sigmoid(score)
    expected = -(target * predicted.log() + (1 - target) * (1 - predicted).log())
    torch.testing.assert_close(loss, expected)
    agreeing = (-logit).clone().requires_grad_()
    hardness_regression(agreeing, logit).sum().backward()
    torch.testing.assert_close(agreeing.grad, torch.zeros(3), rtol=0, atol=1e-7)


def test_clipped_weight():
    weight, clipped = clipped_weight(torch.tensor([-200.0, 0.0, math.log(9.0), math.log(11.0), 1e4]), 10.0)
    assert weight.tolist() == pytest.approx([0.0, 1.0, 9.0, 10.0, 10.0], rel=1e-6)
    assert clipped.tolist() == [False, False, False, True, True]


@pytest.fixture
def world():
    """Contexts with a p_G, a true loss for every word, and the logits of a p_S, all enumerated."""
    rng = torch.Generator().manual_seed(4)
    p_g = (1.5 * torch.randn(CONTEXTS, WORDS, generator=rng)).softmax(-1)
    loss = 3 * torch.rand(CONTEXTS, WORDS, generator=rng) + 0.01
    logits = torch.randn(CONTEXTS, WORDS, generator=rng).requires_grad_()
    return p_g, loss, logits


def expected_gradient(world, proposal, clip, z):
    """Return the expectation over x' ~ q of the gradient of the HP-Dist loss, by going over all words."""
    p_g, loss, logits = world
    total = torch.zeros_like(logits)
    log_total = scan(generator_weights(logits.detach(), WORDS, 1.0, None), logits, None).log_total
    for word in range(WORDS):
        words = torch.full((CONTEXTS,), word)
        log_p_s = log_prob(logits, log_total, words, WORDS)
        weight, _ = clipped_weight((p_g / proposal)[:, word].log(), clip)
        value = hardness_distribution(log_p_s, weight, loss[:, word], z)
        (gradient,) = torch.autograd.grad((value * proposal[:, word]).sum(), logits)
        total += gradient
    return total


def objective_gradient(world, z):
    """Return the gradient of sum over contexts of Z(c) KL(p_S* || p_S), divided by Z."""
    p_g, loss, logits = world
    of_context = (p_g * loss).sum(-1, keepdim=True)
    target = p_g * loss / of_context
    divergence = (target * (target.log() - logits.log_softmax(-1))).sum(-1)
    (gradient,) = torch.autograd.grad((of_context[:, 0] * divergence).sum() / z, logits)
    return gradient


@pytest.mark.parametrize("proposal", ["generator", "head", "uniform"])
def test_hp_dist_gradient_is_unbiased_for_any_proposal(world, proposal):
    p_g, _, logits = world
    uniform = torch.full_like(p_g, 1 / WORDS)
    q = {"generator": p_g, "head": logits.detach().softmax(-1), "uniform": uniform}[proposal]
    found = expected_gradient(world, q, clip=1e9, z=1.7)
    torch.testing.assert_close(found, objective_gradient(world, z=1.7), rtol=1e-4, atol=1e-6)


def test_hp_dist_gradient_is_biased_by_a_clip_of_one(world):
    q = world[2].detach().softmax(-1)
    gap = expected_gradient(world, q, clip=1.0, z=1.0) - objective_gradient(world, z=1.0)
    assert gap.abs().max() > 0.01


def test_variance_formula_and_the_optimal_proposal(world):
    """The estimate (p_G / q) L_D of Z has the formula's variance, and none under p_S ~ p_G x true loss."""
    p_g, loss, logits = world
    z = (p_g * loss).sum(-1)
    # HP-Loss with exact scores: softplus(score) is the loss of a replaced word
    scores = torch.log(torch.expm1(loss))
    optimal = hardness_weights(generator_weights(p_g.log(), WORDS, 1.0, None), scores, WORDS, None)
    for name, q in {
        "p_G": p_g,
        "p_S": logits.detach().softmax(-1),
        "p_S*": optimal(slice(0, CONTEXTS)).softmax(-1),
    }.items():
        estimate = p_g / q * loss
        mean = (q * estimate).sum(-1)
        variance = (q * (estimate - mean[:, None]) ** 2).sum(-1)
        torch.testing.assert_close(mean, z)
        torch.testing.assert_close(variance, ((p_g * loss) ** 2 / q).sum(-1) - z**2, rtol=1e-3, atol=1e-5)
        if name == "p_S*":
            torch.testing.assert_close(variance, torch.zeros(CONTEXTS), rtol=0, atol=1e-6)
        else:
            assert (variance > 0.05).all()
