"""Prediction layers. Vocabulary-sized ones see the N masked slots alone, never all B x L positions."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from electra_ds.model.embeddings import WordTable
from electra_ds.model.encoder import LAYER_NORM_EPS


class VocabularyHead(nn.Module):
    """dense(E) -> gelu -> LayerNorm -> word table + bias.

    The masked language model's head, and both kinds of sampling head. ``transform`` gives the states (N, E);
    calling the module scores them against the table.
    """

    def __init__(self, hidden: int, embedding: int, rows: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, embedding)
        self.norm = nn.LayerNorm(embedding, eps=LAYER_NORM_EPS)
        self.bias = nn.Parameter(torch.zeros(rows))

    def transform(self, hidden: Tensor) -> Tensor:
        """Return states (N, E) from hidden states (N, H)."""
        return self.norm(F.gelu(self.dense(hidden)))

    def forward(
        self, states: Tensor, table: WordTable, ids: Tensor | None = None, detach_table: bool = False
    ) -> Tensor:
        """Return logits (N, V'), or with ``ids`` (N,) the fp32 logits (N,) of those words alone."""
        if ids is None:
            return table(states, self.bias, detach=detach_table)
        words = table(ids, detach=detach_table)
        return (words.float() * states.float()).sum(dim=-1) + self.bias[ids].float()


class SamplingHead(VocabularyHead):
    """The head of HP-Dist: logits of p_S.

    residual: stop_gradient(generator's logits) + correction, the correction's last layer starting at zero,
    so that p_S = p_G at first. copy: starts with the weights of the masked language model's head.
    independent: starts at random, and samples worse than p_G for long.
    """

    def __init__(
        self, hidden: int, embedding: int, rows: int, kind: Literal["residual", "copy", "independent"]
    ) -> None:
        super().__init__(hidden, embedding, rows)
        self.kind = kind
        self.output = nn.Linear(embedding, embedding) if kind == "residual" else None

    def transform(self, hidden: Tensor) -> Tensor:
        """Return states (N, E) from hidden states (N, H)."""
        states = super().transform(hidden)
        return states if self.output is None else self.output(states)

    def logits(
        self, states: Tensor, table: WordTable, generator_logits: Tensor, detach_table: bool
    ) -> Tensor:
        """Return the logits (N, V') of p_S.

        ``generator_logits`` (N, V'), at the temperature of sampling, are read by the residual head alone.
        """
        logits = self(states, table, detach_table=detach_table)
        return logits if self.kind != "residual" else logits + generator_logits.detach()


class ReplacedTokenHead(nn.Module):
    """dense(H) -> gelu -> 1: one logit a token, positive for "replaced"."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, states: Tensor) -> Tensor:
        """Return logits (B, L) from states (B, L, H)."""
        return self.output(F.gelu(self.dense(states))).squeeze(-1)
