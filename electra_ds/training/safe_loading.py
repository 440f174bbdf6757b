"""Which files DeepSpeed's loaders, which unpickle, may be given.

A pickle can name any Python object, and loading it can run any code. torch can list the names without
loading; a checkpoint that names anything beyond what DeepSpeed itself writes is refused.
"""

import importlib
from pathlib import Path
from typing import Any

from electra_ds.config.errors import InputError

# What DeepSpeed's checkpoints hold besides tensors and plain containers.
_DEEPSPEED_GLOBALS = {
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
}


def refuse_code(path: Path) -> None:
    """Raise InputError if a torch file names an object that is neither tensor data nor DeepSpeed's own."""
    from torch.serialization import get_unsafe_globals_in_checkpoint

    try:
        names = set(get_unsafe_globals_in_checkpoint(path)) - _DEEPSPEED_GLOBALS
    except Exception as error:  # whatever a damaged zip or pickle makes the reader say
        raise InputError(f"{path}: no readable torch file ({error}); take another checkpoint") from None
    if names:
        raise InputError(
            f"{path}: refused, because loading it would run code ({', '.join(sorted(names)[:3])});"
            " take a checkpoint that this program wrote"
        )


def load_known(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Load a torch file to the CPU, letting nothing into it but tensors and what DeepSpeed itself writes."""
    import torch

    known = []
    for name in sorted(_DEEPSPEED_GLOBALS):
        module, _, attribute = name.rpartition(".")
        known.append(getattr(importlib.import_module(module), attribute))
    with torch.serialization.safe_globals(known):
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    return content
