"""What a step hands to the joint model, and what it gets back."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor


@dataclass
class StepContext:
    """The facts of a global step that a micro-batch cannot know by itself.

    Losses are sums over the micro-batch divided by counts of the GLOBAL batch (all ranks, all micro-steps),
    so that the sum of the micro-batches' gradients is the gradient of the whole batch however it is cut.
    """

    step: int  # optimizer updates done so far
    num_masked: Tensor | float  # truly masked slots of the global batch
    num_tokens: Tensor | float  # real tokens of the global batch
    carried: dict[str, Tensor] = field(default_factory=dict)  # what carry() returned; {} at the first step
    proposal: Literal["objective", "generator"] = "objective"  # "generator": draw from p_G (evaluation)


class StepOutput(NamedTuple):
    """Loss and statistics of one micro-batch. A tuple, so that DeepSpeed finds the tensors in it."""

    loss: Tensor  # scalar fp32, weighted; no world-size or accumulation factor
    sums: dict[str, Tensor]  # additive fp64 statistics, detached, on the device
