"""The full fp32 weights of a checkpoint by parameter name, on one CPU process, from any ZeRO stage."""

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from electra_ds.training.checkpoint import read_marker, verify
from electra_ds.training.distributed import choose_accelerator

if TYPE_CHECKING:
    from torch import Tensor

_MODEL_STATES = "mp_rank_00_model_states.pt"


def load_fp32_state(checkpoint: Path) -> dict[str, "Tensor"]:
    """Return every parameter by name in fp32; raise InputError if the checkpoint is damaged or unsafe.

    A table used in several places (the word table is also the MLM head's) stands there once.
    """
    import torch

    marker = read_marker(checkpoint)
    verify(checkpoint)
    if marker.zero_stage == 0:
        content = torch.load(checkpoint / _MODEL_STATES, map_location="cpu", weights_only=True)
        state = content["module"]
    else:
        choose_accelerator()
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        quiet = io.StringIO()  # it reports its progress by print and by a bar
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            state = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint.parent), tag=checkpoint.name)
    return {name.replace("_orig_mod.", ""): tensor.float() for name, tensor in state.items()}
