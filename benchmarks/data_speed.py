"""Speed of the data path from shard to batch, on one core, and how full the rows are.

    python benchmarks/data_speed.py SHARDS

Prints for lengths 128 and 512, and for each mask unit: real tokens per second of one process (no loader
processes, warm cache), the share of row positions that hold a real token, the time to the first batch after a
resume far into the run, and the speed of copying rows of the same size out of a memory-mapped array: the
limit.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from electra_ds.config.schema import DataConfig
from electra_ds.data.loader import TrainLoader, initial_state, merge_cursors

SECONDS = 4.0
BATCH_TOKENS = 1 << 15


def rate(loader: TrainLoader, seconds: float) -> tuple[float, float]:
    """Return (real tokens per second of process time, share of positions with a real token)."""
    steps = iter(loader)
    next(steps)  # opens every lane
    real = positions = 0
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        for batch in next(steps).micro:
            real += batch.num_tokens
            positions += batch.input_ids.numel()
    return real / (time.process_time() - begun), real / positions


def resume_seconds(shards: Path, data: DataConfig, batch: int, steps: int) -> float:
    """Seconds from nothing to the first batch after a resume at ``steps``; no lane is read from its
    beginning.
    """
    state = initial_state(data.lanes)
    rows = batch * steps
    state[:, 0] = torch.tensor([(rows - lane + data.lanes - 1) // data.lanes for lane in range(data.lanes)])
    state[:, 1] = steps // 100
    begun = time.perf_counter()
    loader = TrainLoader(shards, data, 1, batch=batch, micro_batch=batch, rank=0, world_size=1, state=state)
    merge_cursors([next(iter(loader)).cursors])
    return time.perf_counter() - begun


def memory_map_rate(seq_len: int, batch: int, seconds: float) -> float:
    """Tokens per second of copying random rows of a memory-mapped uint16 array into int64 batches."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        rows = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.uint16, shape=((1 << 24) // seq_len, seq_len)
        )
        rows[:] = 1
        rng = np.random.default_rng(0)
        tokens = 0
        begun = time.process_time()
        while time.process_time() - begun < seconds:
            torch.from_numpy(rows[rng.integers(0, len(rows), batch)].astype(np.int64))
            tokens += batch * seq_len
        return tokens / (time.process_time() - begun)


def main() -> None:
    """Measure and print one JSON line a setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shards", type=Path)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of each measurement (default: %(default)s)"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}))
    for seq_len in (128, 512):
        batch = BATCH_TOKENS // seq_len
        for unit in ("token", "whole_word", "ngram"):
            data = DataConfig(seq_len=seq_len, mask_unit=unit, workers=0)
            loader = TrainLoader(args.shards, data, 1, batch=batch, micro_batch=batch, rank=0, world_size=1)
            speed, share = rate(loader, args.seconds)
            print(
                json.dumps(
                    {"seq_len": seq_len, "unit": unit, "tokens_per_s": round(speed), "real": round(share, 4)}
                )
            )
        data = DataConfig(seq_len=seq_len, workers=0)
        resumes = {
            steps: round(resume_seconds(args.shards, data, batch, steps), 3) for steps in (10, 1_000_000)
        }
        limit = memory_map_rate(seq_len, batch, args.seconds)
        print(json.dumps({"seq_len": seq_len, "resume_s": resumes, "memory_map_tokens_per_s": round(limit)}))


if __name__ == "__main__":
    main()
