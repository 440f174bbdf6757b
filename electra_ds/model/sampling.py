"""Distributions over the vocabulary: fp32 softmax and inverse-CDF sampling from low-precision logits.

Logits (N, V') may be bf16 or fp16 and are never copied whole to fp32: every function walks over chunks of
rows. Columns from V on are padding rows of the word table, which no distribution here gives any weight.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LogWeights = Callable[[slice], Tensor]  # rows -> unnormalised log weights (rows, V), fp32, a fresh tensor

_CHUNK_ELEMENTS = {"cpu": 1 << 17, "cuda": 1 << 26}  # cache-sized on CPUs, 256 MiB of fp32 on GPUs
_LEAST_HARDNESS = 1e-6  # keeps p_S defined where the estimate says that no word at all is hard


def row_chunks(like: Tensor) -> Iterator[slice]:
    """Yield slices over the rows of ``like`` (N, V'), each small enough to be copied to fp32."""
    rows, width = like.shape
    step = max(1, _CHUNK_ELEMENTS.get(like.device.type, 1 << 26) // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@dataclass
class Distribution:
    """What one pass over N distributions leaves behind; (N,) each."""

    log_total: Tensor  # fp32, log of the sum of the weights
    best: Tensor  # int64, the most probable word
    max_prob: Tensor  # fp32, its probability
    sampled: Tensor  # int64, a word drawn by inverse CDF
    sampled_log_prob: Tensor  # fp32, its log probability


def generator_weights(logits: Tensor, size: int, temperature: float, excluded: Tensor | None) -> LogWeights:
    """Return the log weights of p_G: logits (N, V') over a temperature, ``excluded`` (N,) ruled out."""

    def rows(chunk: slice) -> Tensor:
        weights = logits[chunk, :size].to(torch.float32, copy=True)
        if temperature != 1:
            weights /= temperature
        if excluded is not None:
            weights.scatter_(1, excluded[chunk, None], -torch.inf)
        return weights

    return rows


def log_hardness(error_logit: Tensor) -> Tensor:
    """Return the log of the discriminator's estimated loss from the logit of its being wrong; fp32.

    With s the predicted logit of "the discriminator will call this word original", the loss is softplus(s)
    where the word counts as replaced, and softplus(-s) where it counts as original: pass s or -s.
    """
    return F.softplus(error_logit.float()).clamp(min=_LEAST_HARDNESS).log()


def hardness_weights(base: LogWeights, scores: Tensor, size: int, original: Tensor | None) -> LogWeights:
    """Return the log weights of HP-Loss's p_S: p_G times the estimated hardness, over the whole vocabulary.

    ``scores`` (N, V') are logits of "will be called original"; ``original`` (N,) is the word that counts as
    original, None where every word at a masked position counts as replaced.
    """

    def rows(chunk: slice) -> Tensor:
        error = scores[chunk, :size].float()
        if original is not None:
            column = original[chunk, None]
            error = error.scatter(1, column, -error.gather(1, column))
        return base(chunk) + log_hardness(error)

    return rows


@torch.no_grad()
def scan(log_weights: LogWeights, like: Tensor, draws: Tensor | None) -> Distribution:
    """Normalise N distributions and draw one word from each by inverse CDF, in fp32.

    ``like`` gives the number of rows and the width; ``draws`` (N,) are uniform in [0, 1). The same weights
    and draws give the same words: a run's replacements are fixed by its data stream. Without draws the word
    is the most probable one.
    """
    chunks = list(row_chunks(like))
    parts = [_scan_rows(log_weights(rows), None if draws is None else draws[rows]) for rows in chunks]
    return Distribution(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _scan_rows(weights: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    top, best = weights.max(dim=-1)
    shares = (weights - top[:, None]).exp_()  # (n, V), the largest is 1
    if draws is None:
        total, sampled = shares.sum(dim=-1), best
    else:
        cdf = shares.cumsum(dim=-1)
        total = cdf[:, -1]
        # strictly below the total, so that u near 1 cannot run past the last word that has any weight
        threshold = torch.minimum(draws.float() * total, torch.nextafter(total, torch.zeros_like(total)))
        sampled = torch.searchsorted(cdf, threshold[:, None], right=True).squeeze(1)
        sampled = sampled.clamp(max=weights.shape[-1] - 1)
    log_total = top + total.log()
    log_prob = weights.gather(1, sampled[:, None]).squeeze(1) - log_total
    return log_total, best, total.reciprocal(), sampled, log_prob


class _LogProb(torch.autograd.Function):
    """log softmax at one word a row, without ever holding the softmax of more than a chunk of rows."""

    @staticmethod
    def forward(ctx, logits: Tensor, log_total: Tensor, words: Tensor, excluded: Tensor | None, size: int):
        ctx.save_for_backward(logits, log_total, words, excluded)
        ctx.size = size
        return logits.gather(1, words[:, None]).squeeze(1).float() - log_total

    @staticmethod
    def backward(ctx, grad: Tensor):
        logits, log_total, words, excluded = ctx.saved_tensors
        result = torch.empty_like(logits)
        result[:, ctx.size :] = 0
        for chunk in row_chunks(logits):
            share = (logits[chunk, : ctx.size].float() - log_total[chunk, None]).exp_()
            if excluded is not None:
                share.scatter_(1, excluded[chunk, None], 0.0)
            share *= -grad[chunk, None]
            share.scatter_add_(1, words[chunk, None], grad[chunk, None])
            result[chunk, : ctx.size] = share
        return result, None, None, None, None


def log_prob(
    logits: Tensor, log_total: Tensor, words: Tensor, size: int, excluded: Tensor | None = None
) -> Tensor:
    """Return log softmax(logits[:, :size])[words], (N,) fp32, differentiable in ``logits`` (N, V').

    ``log_total`` (N,) is that of :func:`scan` on the same logits at temperature 1, with the same exclusion.
    """
    result: Tensor = _LogProb.apply(logits, log_total, words, excluded, size)
    return result
