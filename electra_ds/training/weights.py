"""The full fp32 weights of a checkpoint by parameter name, on one CPU process, from any ZeRO stage."""

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from electra_ds.training.checkpoint import read_marker, verify
from electra_ds.training.distributed import choose_accelerator
from electra_ds.training.safe_loading import load_known

if TYPE_CHECKING:
    from torch import Tensor

_MODEL_STATES = "mp_rank_00_model_states.pt"
_BF16_STATES = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"


def load_fp32_state(checkpoint: Path) -> dict[str, "Tensor"]:
    """Return every parameter by name in fp32; raise InputError if the checkpoint is damaged or unsafe.

    A table used in several places (the word table is also the MLM head's) stands there once.
    """
    marker = read_marker(checkpoint)
    verify(checkpoint)
    if marker.zero_stage == 0:
        state = load_known(checkpoint / _MODEL_STATES)["module"]
    elif _is_from_bf16_optimizer(checkpoint):
        state = _bf16_optimizer_state(checkpoint, marker.world_size)
    else:
        choose_accelerator()
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        quiet = io.StringIO()  # it reports its progress by print and by a bar
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            state = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint.parent), tag=checkpoint.name)
    return {name.replace("_orig_mod.", ""): tensor.float() for name, tensor in state.items()}


def _is_from_bf16_optimizer(checkpoint: Path) -> bool:
    """Whether the optimizer's files are those of DeepSpeed's BF16_Optimizer, which name no ZeRO stage."""
    file = checkpoint / _BF16_STATES.format(0)
    if not file.is_file():
        return False
    return "zero_stage" not in load_known(file, mmap=True)["optimizer_state_dict"]


def _bf16_optimizer_state(checkpoint: Path, world_size: int) -> dict[str, "Tensor"]:
    """What DeepSpeed's own script cannot read: bf16 with fp32 accumulation at ZeRO-1.

    Its optimizer keeps each group's fp32 weights as one flat vector, cut into a partition per rank; the names
    and shapes of a group, in order, stand beside the bf16 weights. The end of a vector is padding.
    """
    import torch

    choose_accelerator()  # before DeepSpeed's own types are imported
    shapes = load_known(checkpoint / _MODEL_STATES)["param_shapes"]
    parts = [
        load_known(checkpoint / _BF16_STATES.format(rank))["optimizer_state_dict"]
        for rank in range(world_size)
    ]
    state: dict[str, Tensor] = {}
    for group, named_shapes in enumerate(shapes):
        flat = torch.cat([part["single_partition_of_fp32_groups"][group].flatten() for part in parts])
        offset = 0
        for name, shape in named_shapes.items():
            state[name] = flat[offset : offset + shape.numel()].view(shape).clone()
            offset += shape.numel()
    return state
