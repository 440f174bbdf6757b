"""Batches, and the packed form in which rows travel.

A packed row is one int32 vector of W = 2 L + 2 M + 1 numbers: token ids (L), position | type << 16 | example
<< 17 (L), masked positions (M), draws as float32 bits (M), and how many slots are used (1). One copy moves a
row, one array moves a step between processes.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from electra_ds.data.examples import Rows

_TYPE_SHIFT = 16
_SEGMENT_SHIFT = 17
_POSITION_MASK = 0xFFFF
MAX_SEQ_LEN = 1 << 13  # examples in a row stay below the 14 bits left for their number


@dataclass
class Batch:
    """B rows of L tokens with M prediction slots each; tensors are on the CPU until ``to``."""

    input_ids: Tensor  # (B, L) int64, the ORIGINAL ids, pad_id where empty
    segments: Tensor  # (B, L) int64, number of the example in its row from 1, 0 = padding
    position_ids: Tensor  # (B, L) int64, restarting at 0 in each example
    token_type_ids: Tensor  # (B, L) int64, 0 or 1
    masked_positions: Tensor  # (B, M) int64, index into L; unused slots hold 0
    masked_weights: Tensor  # (B, M) float32, 1 = a masked position, 0 = an unused slot
    draws: Tensor  # (B, M) float32 in [0, 1), with which the replacement of a slot is sampled
    needs_mask: bool  # False when every row is one full example: attention needs no mask
    num_tokens: int  # real tokens, [CLS] and [SEP] included
    num_masked: int

    def _map(self, change) -> "Batch":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Batch(**{k: change(v) if isinstance(v, Tensor) else v for k, v in values.items()})

    def to(self, device: torch.device | str, non_blocking: bool = True) -> "Batch":
        """Return the batch with its tensors on ``device``."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory, from which copies to a GPU are asynchronous."""
        return self._map(lambda tensor: tensor.pin_memory())


def row_width(seq_len: int, slots: int) -> int:
    """W: numbers in a packed row."""
    return 2 * seq_len + 2 * slots + 1


def pack_rows(rows: Rows, positions: np.ndarray, count: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return (R, W) int32 from rows (R, L), positions and draws (R, M), count (R,)."""
    meta = rows.positions | rows.token_types << _TYPE_SHIFT | rows.segments << _SEGMENT_SHIFT
    bits = np.ascontiguousarray(draws, dtype=np.float32).view(np.int32)
    return np.concatenate([rows.ids, meta, positions, bits, count[:, None]], axis=1, dtype=np.int32)


def empty_rows(number: int, seq_len: int, slots: int, pad_id: int) -> np.ndarray:
    """Return ``number`` packed rows without any token."""
    packed = np.zeros((number, row_width(seq_len, slots)), dtype=np.int32)
    packed[:, :seq_len] = pad_id
    return packed


def unpack_rows(packed: np.ndarray, seq_len: int, slots: int) -> Batch:
    """Return the Batch of packed rows (B, W)."""
    ids, meta, positions, bits, count = np.split(
        packed, [seq_len, 2 * seq_len, 2 * seq_len + slots, 2 * (seq_len + slots)], axis=1
    )
    segments = meta >> _SEGMENT_SHIFT
    weights = np.arange(slots) < count
    return Batch(
        input_ids=torch.from_numpy(ids.astype(np.int64)),
        segments=torch.from_numpy(segments.astype(np.int64)),
        position_ids=torch.from_numpy((meta & _POSITION_MASK).astype(np.int64)),
        token_type_ids=torch.from_numpy((meta >> _TYPE_SHIFT & 1).astype(np.int64)),
        masked_positions=torch.from_numpy(positions.astype(np.int64)),
        masked_weights=torch.from_numpy(weights.astype(np.float32)),
        draws=torch.from_numpy(np.ascontiguousarray(bits).view(np.float32)),
        needs_mask=bool((segments != 1).any()),
        num_tokens=int((segments > 0).sum()),
        num_masked=int(count.sum()),
    )
