"""Statistics of training as additive sums, and what is read off them.

Sums are fp64 tensors on the device: they may be added over micro-batches, ranks and steps in any order, and
stay exact where fp32 would lose counts beyond 16.7 million. Nothing here synchronises with the host before
:func:`tags`, which takes sums that were moved to the CPU.
"""

import torch
from torch import Tensor

AUC_BINS = 4096

Sums = dict[str, Tensor]


def add(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the fp64 sum of values, or of values times weights, of the same shape."""
    values = values.detach().double()
    return values.sum() if weights is None else (values * weights).sum()


def auc_histogram(logits: Tensor, is_replaced: Tensor, is_real: Tensor) -> Tensor:
    """Return (2, 4096) fp64 counts of original (0) and replaced (1) tokens by binned logit.

    The logit is squeezed by x / (4 + |x|), which keeps the order; a bin is 0.002 wide at 0 and 0.012 at 6,
    finer than bf16, so that a discriminator that answers nearly a constant is still resolved. Tokens with
    ``is_real`` False are not counted; all arguments (B, L).
    """
    squeezed = logits.detach().float()
    squeezed = squeezed / (4 + squeezed.abs())
    bins = ((squeezed + 1) * (AUC_BINS / 2)).nan_to_num(nan=0.0).long().clamp(0, AUC_BINS - 1)
    index = bins + is_replaced.long() * AUC_BINS
    counts = torch.zeros(2 * AUC_BINS, dtype=torch.float64, device=logits.device)
    return counts.scatter_add_(0, index.flatten(), is_real.double().flatten()).view(2, AUC_BINS)


def auc_from_histogram(histogram: Tensor) -> float:
    """Return the area under the ROC curve, ties in a bin counting one half; 0.5 where a class is empty."""
    original, replaced = histogram.double()
    pairs = original.sum() * replaced.sum()
    if pairs == 0:
        return 0.5
    below = original.cumsum(0) - original / 2
    return float((replaced * below).sum() / pairs)


def generator_sums(best: Tensor, max_prob: Tensor, targets: Tensor, weights: Tensor) -> Sums:
    """Return the sums of a generator: (N,) each, weight 1 at a truly masked slot and 0 at an unused one."""
    return {
        "masked": add(weights),
        "generator_correct": add(best == targets, weights),
        "generator_max_prob": add(max_prob, weights),
    }


def discriminator_sums(logits: Tensor, is_replaced: Tensor, is_real: Tensor, is_masked: Tensor) -> Sums:
    """Return the sums of a discriminator: (B, L) each, the last three bool."""
    says_replaced = logits.detach() > 0
    correct = (says_replaced == is_replaced) & is_real
    return {
        "tokens": add(is_real),
        "discriminator_correct": add(correct),
        "discriminator_correct_masked": add(correct & is_masked),
        "replaced": add(is_replaced & is_real),
        "called_replaced": add(says_replaced & is_real),
        "found_replaced": add(says_replaced & is_replaced & is_real),
        "auc": auc_histogram(logits, is_replaced, is_real),
    }


def hardness_sums(weight: Tensor, clipped: Tensor, estimate: Tensor, hardness: Tensor, used: Tensor) -> Sums:
    """Return the sums of a sampling head, (N,) each.

    ``weight`` p_G / q as used, ``clipped`` whether it was cut, ``estimate`` the head's idea of the
    discriminator's loss, ``hardness`` that loss, ``used`` the slot weights.
    """
    estimate, hardness = estimate.detach().double(), hardness.detach().double()
    return {
        "weight": add(weight, used),
        "weight_squared": add(weight.double() ** 2, used),
        "weight_clipped": add(clipped, used),
        "weighted_hardness": add(weight.double() * hardness, used),
        "estimate": add(estimate, used),
        "estimate_squared": add(estimate**2, used),
        "hardness": add(hardness, used),
        "hardness_squared": add(hardness**2, used),
        "estimate_hardness": add(estimate * hardness, used),
    }


def ratio(sums: Sums, numerator: str, denominator: str) -> float:
    """Return the quotient of two sums, 0 where the denominator is 0."""
    below = float(sums[denominator])
    return float(sums[numerator]) / below if below else 0.0


def generator_tags(sums: Sums) -> dict[str, float]:
    """Return ``generator/*`` from :func:`generator_sums`."""
    return {
        "generator/accuracy": ratio(sums, "generator_correct", "masked"),
        "generator/max_prob": ratio(sums, "generator_max_prob", "masked"),
    }


def discriminator_tags(sums: Sums) -> dict[str, float]:
    """Return ``discriminator/*`` from :func:`discriminator_sums`; "replaced" is the positive class."""
    return {
        "discriminator/accuracy": ratio(sums, "discriminator_correct", "tokens"),
        "discriminator/accuracy_masked": ratio(sums, "discriminator_correct_masked", "masked"),
        "discriminator/precision": ratio(sums, "found_replaced", "called_replaced"),
        "discriminator/recall": ratio(sums, "found_replaced", "replaced"),
        "discriminator/auc": auc_from_histogram(sums["auc"]),
    }


def hardness_tags(sums: Sums) -> dict[str, float]:
    """Return ``sampling/*`` from :func:`hardness_sums`.

    The effective sample size is the share (sum w)^2 / (n sum w^2) of the masked positions; the correlation is
    Pearson's, 0 where either side does not vary.
    """
    count = float(sums["masked"])
    spread = count * float(sums["weight_squared"])
    return {
        "sampling/hardness_correlation": _pearson(sums, count),
        "sampling/effective_sample_size": float(sums["weight"]) ** 2 / spread if spread else 0.0,
        "sampling/clipped": ratio(sums, "weight_clipped", "masked"),
    }


def _pearson(sums: Sums, count: float) -> float:
    x, y, xx, yy, xy = (
        float(sums[name])
        for name in ("estimate", "hardness", "estimate_squared", "hardness_squared", "estimate_hardness")
    )
    spread_x, spread_y = count * xx - x * x, count * yy - y * y
    # a spread below the rounding of its two terms is none
    if spread_x <= 1e-10 * count * xx or spread_y <= 1e-10 * count * yy:
        return 0.0
    return (count * xy - x * y) / (spread_x * spread_y) ** 0.5
