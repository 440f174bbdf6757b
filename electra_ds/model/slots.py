"""The masked slots of a batch, flattened to N = B x M, and the rows that come of filling them.

The number of slots is fixed, so nothing here waits for the device. Unused slots point at position 0 with
weight 0; they are computed like the others and leave no trace: not in the rows, not in the losses.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from electra_ds.data.batch import Batch


@dataclass
class Slots:
    """Where something is masked, what stood there, and the uniform number its replacement is drawn with."""

    ids: Tensor  # (B, L) int64, the original rows
    positions: Tensor  # (B, M) int64, index into L
    used: Tensor  # (N,) fp32, 1 at a truly masked slot, 0 at an unused one
    targets: Tensor  # (N,) int64, the original words
    draws: Tensor  # (N,) fp32
    flat: Tensor  # (N,) int64, index into B * L

    @classmethod
    def of(cls, batch: Batch) -> "Slots":
        """Return the slots of a batch."""
        rows, length = batch.input_ids.shape
        positions = batch.masked_positions
        start = torch.arange(rows, device=positions.device)[:, None] * length
        flat = (positions + start).flatten()
        return cls(
            ids=batch.input_ids,
            positions=positions,
            used=batch.masked_weights.flatten(),
            targets=batch.input_ids.flatten()[flat],
            draws=batch.draws.flatten(),
            flat=flat,
        )

    def gather(self, values: Tensor) -> Tensor:
        """Return the values at the slots: (B, L, H) to (N, H), or (B, L) to (N,)."""
        return values.flatten(0, 1).index_select(0, self.flat)

    def put(self, words: Tensor | int) -> Tensor:
        """Return the rows (B, L) with ``words`` (N,), or one word, at the used slots."""
        # adding the difference, rather than writing the word, leaves position 0 alone at unused slots
        change = (words - self.targets) * self.used.long()
        return self.ids.scatter_add(1, self.positions, change.view_as(self.positions))

    def spread(self, values: Tensor) -> Tensor:
        """Return (B, L) with ``values`` (N,) at the used slots and 0 elsewhere."""
        empty = torch.zeros(self.ids.shape, dtype=values.dtype, device=values.device)
        return empty.scatter_add(1, self.positions, (values * self.used).view_as(self.positions))

    def is_masked(self) -> Tensor:
        """Return (B, L) bool."""
        return self.spread(self.used) > 0
