"""What the rest of the system must know of a tokenizer: its size, five special ids, its fingerprint."""

from dataclasses import dataclass

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0-4 of a tokenizer trained here
PADDING_MULTIPLE = 64  # word tables are padded to this for the matrix units


@dataclass(frozen=True)
class Vocabulary:
    """Size and special ids of the tokenizer that made a shard set; ``sha256`` is of its tokenizer.json."""

    size: int
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    sha256: str

    @property
    def padded_size(self) -> int:
        """Rows of the word table in training: ``size`` rounded up to a multiple of 64."""
        return -(-self.size // PADDING_MULTIPLE) * PADDING_MULTIPLE

    @property
    def control_ids(self) -> tuple[int, int, int, int]:
        """Ids that raw text must never produce; [UNK] is not among them."""
        return (self.pad_id, self.cls_id, self.sep_id, self.mask_id)
