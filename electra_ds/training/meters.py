"""What happened since the last log line: sums from the model, and time.

The sums stay on the device and are added there; they cross to the CPU once a log step.
"""

import resource
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from electra_ds.training.distributed import Ranks

Sums = dict[str, Tensor]


def add_sums(total: Sums, part: Sums) -> Sums:
    """Add ``part`` into ``total`` in place (an empty total becomes a copy) and return it."""
    if not total:
        return {name: tensor.detach().clone() for name, tensor in part.items()}
    names = list(part)
    torch._foreach_add_([total[name] for name in names], [part[name] for name in names])
    return total


def reduce_sums(sums: Sums, ranks: Ranks) -> Sums:
    """Sums over all ranks, on the device, in one collective of fp64 (fp32 counts stop at 2^24)."""
    if ranks.world_size == 1 or not sums:
        return sums
    names = sorted(sums)
    flat = torch.cat([sums[name].double().reshape(-1) for name in names])
    parts = ranks.sum_on_device(flat).split([sums[name].numel() for name in names])
    return {
        name: part.reshape(sums[name].shape).to(sums[name].dtype)
        for name, part in zip(names, parts, strict=True)
    }


@dataclass
class Window:
    """Everything summed since the last log line on this rank."""

    sums: Sums = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0  # real tokens of the global batches
    skipped: int = 0
    waited: float = 0.0  # seconds spent waiting for data
    seconds: float = 0.0  # spent in steps; evaluation and checkpoints do not count

    def add(self, sums: Sums, tokens: int) -> None:
        """Count one applied step."""
        self.sums = add_sums(self.sums, sums)
        self.steps += 1
        self.tokens += tokens

    def reduced(self, ranks: Ranks) -> Sums:
        """The global sums on the CPU. All ranks call it."""
        return {name: tensor.cpu() for name, tensor in reduce_sums(self.sums, ranks).items()}

    def state(self, ranks: Ranks) -> dict[str, object]:
        """For a checkpoint between two log lines. All ranks call it; the sums are global."""
        return {
            "sums": self.reduced(ranks),
            "steps": self.steps,
            "tokens": self.tokens,
            "skipped": self.skipped,
        }

    @staticmethod
    def restored(state: dict, ranks: Ranks) -> "Window":
        """The window of a checkpoint: rank 0 takes the sums, which were global."""
        sums = {
            name: t.to(ranks.device) if ranks.is_first else torch.zeros_like(t, device=ranks.device)
            for name, t in state["sums"].items()
        }
        return Window(sums, state["steps"], state["tokens"], state["skipped"])


class Stopwatch:
    """Adds up seconds between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self._begun = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last call of ``start`` or ``lap``."""
        now = time.monotonic()
        seconds, self._begun = now - self._begun, now
        return seconds


def memory_gib(ranks: Ranks) -> float:
    """The largest memory this process has used: of the GPU where there is one, else resident; GiB."""
    if ranks.on_gpu:
        return torch.cuda.max_memory_allocated(ranks.device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# Dense bf16 or fp16 matrix multiplication, FLOP/s, from the makers' data sheets.
_PEAKS = {"A100": 312e12, "A800": 312e12, "H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "L40S": 362e12,
          "A10G": 70e12, "A40": 150e12, "V100": 125e12, "T4": 65e12, "B200": 2250e12}  # fmt: skip


def peak_flops(ranks: Ranks, half_precision: bool) -> tuple[float, str]:
    """FLOP/s of which MFU is a share, and where the number is from.

    For a known GPU in half precision the data sheet's; otherwise what a plain matrix product reaches here.
    """
    if ranks.on_gpu and half_precision:
        name = torch.cuda.get_device_name(ranks.device)
        for part, peak in _PEAKS.items():
            if part in name:
                return peak, f"{name}, data sheet"
    dtype = torch.bfloat16 if half_precision else torch.float32
    size = 4096 if ranks.on_gpu else 512
    matrix = torch.randn(size, size, device=ranks.device, dtype=dtype)
    best = 0.0
    for _ in range(5):
        begun = time.monotonic()
        product = matrix @ matrix
        float(product[0, 0])  # waits for the device
        best = max(best, 2 * size**3 / (time.monotonic() - begun))
    return best, "measured with a matrix product"
