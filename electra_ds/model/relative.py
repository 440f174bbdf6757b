"""Relative position bias in T5's buckets (Raffel et al. 2020, section 2.1), bidirectional."""

import math

import torch
from torch import Tensor, nn

NUM_BUCKETS = 32
MAX_DISTANCE = 128
LOCAL_SLOPES = (0.6, 0.15)  # of even and odd heads, in logits per token of distance


def relative_buckets(distance: Tensor) -> Tensor:
    """Return the bucket, 0..31, of each key-minus-query distance; any integer shape.

    Half of the buckets are for keys on the right. In each half 8 hold one distance each, 8 grow
    logarithmically up to 128, and the last takes all that is further.
    """
    half = NUM_BUCKETS // 2
    exact = half // 2
    size = distance.abs()
    # float32, as published: the borders of the logarithmic buckets depend on the rounding
    growth = torch.log(size.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact)
    coarse = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(size < exact, size, coarse) + (distance > 0).long() * half


def bucket_distances() -> Tensor:
    """Return (32,) fp32: the mean absolute distance of the distances that share a bucket."""
    distance = torch.arange(-MAX_DISTANCE, MAX_DISTANCE + 1, device="cpu")
    bucket = relative_buckets(distance)
    total = torch.zeros(NUM_BUCKETS, device="cpu").index_add(0, bucket, distance.abs().float())
    return total / torch.bincount(bucket, minlength=NUM_BUCKETS).clamp(min=1)


def local_bias(heads: int) -> Tensor:
    """Return (32, heads): a bias that falls with distance, steeply in even heads, gently in odd ones."""
    slopes = torch.tensor([LOCAL_SLOPES[head % len(LOCAL_SLOPES)] for head in range(heads)], device="cpu")
    return -bucket_distances()[:, None] * slopes


class RelativeBias(nn.Module):
    """One table (32 buckets, heads), shared by all layers of a network, added to the attention scores."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(NUM_BUCKETS, heads))
        self._one_hot: dict[tuple[int, torch.device, torch.dtype], Tensor] = {}

    def forward(self, length: int) -> Tensor:
        """Return (1, heads, L, L): entry [h, query, key]."""
        # a matmul with one-hot rows: its backward is a matmul too, where that of a look-up with 32 distinct
        # rows among L * L would be a long chain of colliding additions
        rows = self._one_hot_buckets(length)
        return (rows @ self.weight).view(length, length, -1).permute(2, 0, 1)[None]

    def _one_hot_buckets(self, length: int) -> Tensor:
        """Return (L * L, 32), made once per length, device and dtype."""
        key = (length, self.weight.device, self.weight.dtype)
        if key not in self._one_hot:
            place = torch.arange(length, device="cpu")
            bucket = relative_buckets(place[None, :] - place[:, None]).flatten()
            one_hot = torch.nn.functional.one_hot(bucket, NUM_BUCKETS)
            self._one_hot[key] = one_hot.to(self.weight.device, self.weight.dtype)
        return self._one_hot[key]
