"""Post-LN BERT encoder: the network that generator and discriminator are two sizes of.

Shapes in comments: B rows, L tokens, E embedding, H hidden, h heads, d = H / h.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_ds.config.shapes import EncoderShape
from electra_ds.model.relative import RelativeBias

LAYER_NORM_EPS = 1e-12
MASKED_SCORE = -3e4  # no weight is left of it after any softmax, and it is finite in fp16 too

Positions = Literal["absolute", "relative", "both"]


def segment_mask(segments: Tensor) -> Tensor:
    """Return (B, 1, L, L) bool: True where query and key belong to the same example of a row.

    Padding is example 0 and attends to padding, so that no row of scores is ever fully masked.
    """
    return (segments[:, :, None] == segments[:, None, :])[:, None]


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    """Return softmax(q k^T / sqrt(d) + bias) v by explicit matmuls; (B, h, L, d) in and out.

    On CPUs this is faster than ``scaled_dot_product_attention``, whose bf16 backward there is slow.
    """
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)  # (B, h, L, L)
    if bias is not None:
        scores = scores + bias
    return F.dropout(scores.softmax(dim=-1), dropout) @ value


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection to query, key and value."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, states: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        """Return (B, L, H) from states (B, L, H) and an additive bias (1 or B, 1 or h, L, L)."""
        rows, length, hidden = states.shape
        qkv = self.qkv(states).view(rows, length, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, h, L, d) each
        if bias is not None:
            bias = bias.to(query.dtype)
        if states.is_cuda:
            mixed = F.scaled_dot_product_attention(query, key, value, bias, dropout)
        else:
            mixed = attend(query, key, value, bias, dropout)
        return self.output(mixed.transpose(1, 2).reshape(rows, length, hidden))


class Layer(nn.Module):
    """Attention, then feed-forward; the LayerNorm stands after each residual sum."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.attention = Attention(shape.hidden, shape.heads)
        self.attention_norm = nn.LayerNorm(shape.hidden, eps=LAYER_NORM_EPS)
        self.up = nn.Linear(shape.hidden, shape.ffn)
        self.down = nn.Linear(shape.ffn, shape.hidden)
        self.output_norm = nn.LayerNorm(shape.hidden, eps=LAYER_NORM_EPS)

    def forward(self, states: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
        """Return (B, L, H)."""
        mixed = self.attention(states, bias, dropout)
        states = self.attention_norm(states + F.dropout(mixed, dropout))
        changed = self.down(F.gelu(self.up(states)))
        return self.output_norm(states + F.dropout(changed, dropout))


class Encoder(nn.Module):
    """Embeddings (B, L, E) to hidden states (B, L, H)."""

    def __init__(self, shape: EncoderShape, embedding: int, positions: Positions, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = dropout
        self.project = nn.Linear(embedding, shape.hidden) if embedding != shape.hidden else None
        self.relative = RelativeBias(shape.heads) if positions != "absolute" else None
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(self, embedded: Tensor, segments: Tensor | None, deterministic: bool = False) -> Tensor:
        """Return (B, L, H).

        ``segments`` (B, L) keeps attention inside each example; None means that every row is one full
        example. ``deterministic`` switches dropout off for this call alone.
        """
        dropout = self.dropout if self.training and not deterministic else 0.0
        states = embedded if self.project is None else self.project(embedded)
        bias = self._bias(segments, embedded.shape[1])
        for layer in self.layers:
            states = layer(states, bias, dropout)
        return states

    def _bias(self, segments: Tensor | None, length: int) -> Tensor | None:
        """Return what is added to the scores of every layer, (1 or B, 1 or h, L, L), or None for nothing."""
        bias = None if self.relative is None else self.relative(length)
        if segments is None:
            return bias
        if bias is None:
            bias = torch.zeros((), device=segments.device)
        return bias.masked_fill(~segment_mask(segments), MASKED_SCORE)
