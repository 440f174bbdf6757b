"""Losses as pure functions: per position, fp32, not reduced."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

_LEAST_DOUBT = 1e-12  # 1 - p is kept above this, where a power below 1 of it would have an infinite slope


def focal(log_prob: Tensor, gamma: float) -> Tensor:
    """Return -(1 - p)^gamma log p from log p (N,): Lin et al. 2017, the factor differentiated too.

    Sampling smoothing (Hao et al. 2021); gamma 0 is the cross-entropy.
    """
    if gamma == 0:
        return -log_prob
    doubt = (-torch.expm1(log_prob)).clamp(min=_LEAST_DOUBT)
    return -doubt.pow(gamma) * log_prob


def replaced_token_detection(logits: Tensor, is_replaced: Tensor) -> Tensor:
    """Return the binary cross-entropy of each token; logits positive for "replaced", same shape as labels."""
    return F.binary_cross_entropy_with_logits(logits.float(), is_replaced.float(), reduction="none")


def hardness_regression(score: Tensor, discriminator_logit: Tensor) -> Tensor:
    """Return HP-Loss's cross-entropy of the predicted against the discriminator's "original" probability.

    ``score`` (N,) is the logit of the prediction, ``discriminator_logit`` (N,) the discriminator's for
    "replaced", detached here.
    """
    target = torch.sigmoid(-discriminator_logit.detach().float())
    return F.binary_cross_entropy_with_logits(score.float(), target, reduction="none")


def hardness_distribution(
    log_prob: Tensor, weight: Tensor, hardness: Tensor, normalizer: Tensor | float
) -> Tensor:
    """Return HP-Dist's -(p_G / q) L_D / Z log p_S of the drawn words, (N,).

    ``log_prob`` (N,) of p_S carries the gradient; ``weight`` p_G / q, ``hardness`` L_D and ``normalizer`` Z
    do not. With unclipped weights its gradient is, in expectation over q, that of Z(c) KL(p_S* || p_S) / Z.
    """
    return -(weight * hardness / normalizer).detach() * log_prob


def clipped_weight(log_ratio: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Return min(p_G / q, bound) and whether it was clipped, from log p_G - log q (N,); always finite."""
    limit = math.log(bound)
    return log_ratio.clamp(max=limit).exp(), log_ratio > limit
