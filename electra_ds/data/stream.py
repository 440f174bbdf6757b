"""The order of the data: a pure function of (seed, epoch, manifest, stream settings).

The story, from the outside in:

1. The units are whole shards if there are at least as many as lanes, else records. Each epoch permutes them
   and deals them to the lanes in turn, going on where the epoch before stopped, so lanes stay level.
2. A lane reads its units one after the other, the records of a shard in random order. As many records
   as make about 128 rows are a *block*: one record of 16,384 tokens at length 128, four at 512. Only the
   last row of a block is short.
3. A block becomes rows (``examples.py``), masked (``masking.py``). All randomness is keyed by (seed, epoch,
   lane, first record of the block), so no state of a generator is ever saved.
4. Row i of the run is row i // lanes of lane i % lanes. The global batch is B consecutive rows; a rank takes
   those with i % world_size equal to its number.

Nothing here depends on how many ranks or loader processes there are. A lane's place is four integers: rows
consumed, epoch, records of the lane's epoch that lie before the block, row of the block. Going on from there
reads that one block. The third is counted in records, so that it means the same at every length.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.config.schema import DataConfig
from electra_ds.data.batch import MAX_SEQ_LEN, pack_rows
from electra_ds.data.examples import MIN_SEQ_LEN, block_rows
from electra_ds.data.keyed import Purpose, keyed_bits, permutation
from electra_ds.data.manifest import Manifest
from electra_ds.data.masking import mask_rows, num_slots
from electra_ds.data.records import Block, RecordError, join_blocks
from electra_ds.data.shards import read_block

ROWS_PER_BLOCK = 128


def check_stream_settings(data: DataConfig) -> None:
    """Raise InputError for settings that no stream can have."""
    if not MIN_SEQ_LEN <= data.seq_len <= MAX_SEQ_LEN:
        raise InputError(f"data.seq_len={data.seq_len}: must be between {MIN_SEQ_LEN} and {MAX_SEQ_LEN}")
    if data.lanes < 1:
        raise InputError(f"data.lanes={data.lanes}: must be at least 1")
    if not 0.0 < data.mask_prob < 1.0:
        raise InputError(f"data.mask_prob={data.mask_prob}: must be between 0 and 1")
    if data.workers < 0:
        raise InputError(f"data.workers={data.workers}: must be 0 or more")


class Stream:
    """The rows of a shard set, by (epoch, lane, block)."""

    def __init__(self, manifest: Manifest, data: DataConfig, seed: int) -> None:
        check_stream_settings(data)
        self.manifest = manifest
        self.data = data
        self.seed = seed
        self.lanes = data.lanes
        self.slots = num_slots(data.seq_len, data.mask_prob, data.mask_unit)
        self._offsets = [np.cumsum((0, *shard.block_bytes)) for shard in manifest.shards]
        largest = max(max(shard.blocks) for shard in manifest.shards)
        self.records_per_block = math.ceil(ROWS_PER_BLOCK * data.seq_len / largest)
        self._first = np.cumsum([0] + [shard.records for shard in manifest.shards])  # numbers of records
        self._whole_shards = len(manifest.shards) >= data.lanes
        self._units = len(manifest.shards) if self._whole_shards else int(self._first[-1])
        self._unit_order = lru_cache(maxsize=4)(self._permute_units)

    def _permute_units(self, epoch: int) -> np.ndarray:
        return permutation(keyed_bits(self.seed, Purpose.UNITS, epoch=epoch), self._units)

    def lane_records(self, epoch: int, lane: int) -> np.ndarray:
        """Return the records, numbered over the whole set, that a lane reads in an epoch; often there are
        none.
        """
        begin = (lane - epoch * self._units) % self.lanes  # dealing goes on where the last epoch stopped
        if begin >= self._units:
            return np.empty(0, dtype=np.int64)
        units = self._unit_order(epoch)[begin :: self.lanes]
        if not self._whole_shards:
            return units
        parts = []
        for unit in units.tolist():
            bits = keyed_bits(self.seed, Purpose.BLOCKS, epoch=epoch, block=unit)
            parts.append(self._first[unit] + permutation(bits, self.manifest.shards[unit].records))
        return np.concatenate(parts)

    def _read(self, record: int) -> Block:
        number = int(np.searchsorted(self._first, record, side="right")) - 1
        index = record - int(self._first[number])
        shard = self.manifest.shards[number]
        path = self.manifest.folder / shard.name
        vocab_size = self.manifest.vocab.size
        try:
            block = read_block(path, shard, index, int(self._offsets[number][index]))
            if int(block.tokens.max()) >= vocab_size:
                raise RecordError(f"record {index} holds ids beyond the vocabulary of {vocab_size}")
        except RecordError as error:
            raise RunFailure(f"{path}: {error}; run 'electra-ds prepare --check {path.parent}'") from None
        return block

    def rows(
        self, records: Sequence[int], epoch: int, lane: int, block: int, shuffle: bool = True
    ) -> np.ndarray:
        """Return the packed rows (R, W) int32 of the records of a block; R is at least 1.

        ``block`` names it: how many records of the lane's epoch lie before it.
        Raises RunFailure naming the shard if a record is not as it was written.
        """
        data, vocab = self.data, self.manifest.vocab
        content = join_blocks([self._read(record) for record in records])
        bits = keyed_bits(self.seed, Purpose.EXAMPLES, epoch=epoch, lane=lane, block=block)
        rows = block_rows(content, data.seq_len, data.examples, data.pack, vocab, bits, shuffle)
        bits = keyed_bits(self.seed, Purpose.MASKS, epoch=epoch, lane=lane, block=block)
        masks = mask_rows(rows.maskable, rows.word_starts, data.mask_prob, data.mask_unit, self.slots, bits)
        return pack_rows(rows, *masks)


class LaneReader:
    """Reads one lane forwards from a place (rows consumed, epoch, records before the block, row)."""

    def __init__(self, stream: Stream, lane: int, place: tuple[int, int, int, int]) -> None:
        self._stream = stream
        self._lane = lane
        self._consumed, self._epoch, self._block, self._row = place
        self._records: np.ndarray | None = None  # of the current epoch
        self._rows: np.ndarray | None = None  # of the current block

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Where the lane stands: (rows consumed, epoch, records before the block, row)."""
        return (self._consumed, self._epoch, self._block, self._row)

    def _load(self) -> np.ndarray:
        stream = self._stream
        if self._records is None:
            self._records = stream.lane_records(self._epoch, self._lane)
        while self._block >= len(self._records):
            self._epoch, self._block, self._row = self._epoch + 1, 0, 0
            self._records = stream.lane_records(self._epoch, self._lane)
        records = self._records[self._block : self._block + stream.records_per_block].tolist()
        rows = stream.rows(records, self._epoch, self._lane, self._block)
        if self._row >= len(rows):
            raise RunFailure(
                f"lane {self._lane}: row {self._row} of a block of {len(rows)} rows asked for;"
                " the saved data position belongs to other shards or settings"
            )
        return rows

    def take(self, number: int) -> np.ndarray:
        """Consume the lane up to and including row ``number`` and return that row, (W,) int32."""
        while True:
            if self._rows is None:
                self._rows = self._load()
            ahead = number - self._consumed
            left = len(self._rows) - self._row
            if ahead < left:
                row = self._rows[self._row + ahead]
                self._advance(ahead + 1)
                return row
            self._advance(left)

    def _advance(self, rows: int) -> None:
        self._consumed += rows
        self._row += rows
        if self._rows is not None and self._row == len(self._rows):
            self._block += self._stream.records_per_block
            self._row, self._rows = 0, None
