"""Which files DeepSpeed's loaders, which unpickle, may be given.

A pickle can name any Python object, and loading it can run any code. torch can list the names without
loading; a checkpoint that names anything beyond what DeepSpeed itself writes is refused.
"""

from pathlib import Path

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
