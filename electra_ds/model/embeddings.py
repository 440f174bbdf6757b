"""Word, position and type embeddings, and the three ways in which the two networks share them.

Every parameter is touched only inside the forward of the module that owns it, never from outside: under
ZeRO-3 a parameter is whole only while its own module runs.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_ds.model.encoder import LAYER_NORM_EPS

TOKEN_TYPES = 2


class WordTable(nn.Module):
    """The word table (V', E), used both to look words up and as the output layer of the vocabulary heads."""

    def __init__(self, rows: int, embedding: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, embedding))

    def forward(self, x: Tensor, bias: Tensor | None = None, *, detach: bool = False) -> Tensor:
        """Look up integer ids (...) as (..., E), or score states (N, E) as logits (N, V') plus bias (V').

        ``detach`` keeps the gradient out of the table.
        """
        weight = self.weight.detach() if detach else self.weight
        return F.linear(x, weight, bias) if x.is_floating_point() else F.embedding(x, weight)


class Embeddings(nn.Module):
    """word + type + position -> LayerNorm -> dropout, in the reference's order."""

    def __init__(self, rows: int, embedding: int, positions: int | None, dropout: float) -> None:
        """``rows`` V' of the word table; ``positions`` rows of the position table, None for no such table."""
        super().__init__()
        self.dropout = dropout
        self.word = WordTable(rows, embedding)
        self.position = nn.Embedding(positions, embedding) if positions is not None else None
        self.token_type = nn.Embedding(TOKEN_TYPES, embedding)
        self.norm = nn.LayerNorm(embedding, eps=LAYER_NORM_EPS)

    def forward(
        self, ids: Tensor, token_types: Tensor, positions: Tensor, deterministic: bool = False
    ) -> Tensor:
        """Return (B, L, E) from ids, types and positions, (B, L) int64 each."""
        position = None if self.position is None else self.position(positions)
        return self.combine(self.word(ids), position, token_types, deterministic)

    def combine(
        self, word: Tensor, position: Tensor | None, token_types: Tensor, deterministic: bool = False
    ) -> Tensor:
        """Add the types to looked-up words and positions, normalise, drop out."""
        total = word + self.token_type(token_types)
        if position is not None:
            total = total + position
        return F.dropout(self.norm(total), self.dropout if self.training and not deterministic else 0.0)


class EmbeddingDeltas(nn.Module):
    """The discriminator's embeddings under gradient-disentangled sharing (He et al. 2021, DeBERTaV3).

    It reads stop_gradient(E_G) + delta for words and positions, delta starting at zero: the discriminator's
    loss trains the deltas and leaves the generator's tables alone. Types and LayerNorm are shared.
    """

    def __init__(self, rows: int, embedding: int, positions: int | None) -> None:
        super().__init__()
        self.word_delta = nn.Parameter(torch.zeros(rows, embedding))
        self.position_delta = (
            nn.Parameter(torch.zeros(positions, embedding)) if positions is not None else None
        )

    def forward(self, ids: Tensor, token_types: Tensor, positions: Tensor, base: Embeddings) -> Tensor:
        """Return (B, L, E); ``base`` are the generator's embeddings."""
        word = base.word(ids).detach() + F.embedding(ids, self.word_delta)
        position = None
        if base.position is not None and self.position_delta is not None:
            position = base.position(positions).detach() + F.embedding(positions, self.position_delta)
        return base.combine(word, position, token_types)
