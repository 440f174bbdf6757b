"""AdamW over the joint model, and what of it changes from step to step.

The published implementation (Clark et al. 2020) has no bias correction in its Adam (0.9, 0.999, eps 1e-6);
torch's AdamW always corrects. Both are the same update with other constants, so that
``bias_correction=false`` is had by scaling the group's constants at every step, see :func:`group_values`.
"""

import math
from typing import Any

import torch
from torch import nn

from electra_ds.config.schema import Config, OptimizerConfig
from electra_ds.training.schedule import learning_rate


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: decayed matrices and tables, and undecayed LayerNorms and biases.

    The reference excludes every variable whose name holds LayerNorm or bias. Here those are exactly the
    parameters of one dimension.
    """
    decayed: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    for parameter in model.parameters():
        # Under ZeRO-3 a parameter is an empty vector; its own shape stands in ds_shape.
        shape = getattr(parameter, "ds_shape", parameter.shape)
        (decayed if len(shape) > 1 else undecayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay, "decayed": True},
        {"params": undecayed, "weight_decay": 0.0, "decayed": False},
    ]


def group_values(optimizer: OptimizerConfig, step: int, steps: int) -> dict[str, float]:
    """lr, eps and weight_decay to give to a bias-correcting AdamW for update ``step`` (0-based).

    AdamW does p -= lr wd p + lr m / bc1 / (sqrt(v) / sqrt(bc2) + eps) with bc = 1 - beta^(step + 1).
    Without bias correction p -= lr wd p + lr m / (sqrt(v) + eps), which is AdamW with
    lr' = lr bc1 / sqrt(bc2), eps' = eps / sqrt(bc2), wd' = wd lr / lr'.
    """
    rate = learning_rate(optimizer, step, steps)
    values = {"lr": rate, "eps": optimizer.eps, "weight_decay": optimizer.weight_decay}
    if not optimizer.bias_correction:
        correction1 = 1 - optimizer.betas[0] ** (step + 1)
        root2 = math.sqrt(1 - optimizer.betas[1] ** (step + 1))
        values["lr"] = rate * correction1 / root2
        values["eps"] = optimizer.eps / root2
        values["weight_decay"] = optimizer.weight_decay * root2 / correction1
    return values


def set_group_values(groups: list[dict[str, Any]], values: dict[str, float]) -> None:
    """Write :func:`group_values` into an optimizer's groups, decay only where there is one."""
    for group in groups:
        group["lr"] = values["lr"]
        group["eps"] = values["eps"]
        group["weight_decay"] = values["weight_decay"] if group["decayed"] else 0.0


class GuardedAdamW(torch.optim.AdamW):
    """AdamW that clips by the global norm and leaves out an update whose gradients are not finite.

    DeepSpeed's ZeRO optimizers do both. At ZeRO stage 0 in fp32 its engine calls the plain optimizer, would
    write NaN into every weight, and reports no norm. ``overflow`` and ``_global_grad_norm`` are the names
    under which the engine looks for the outcome.
    """

    def __init__(self, groups: list[dict[str, Any]], clip: float, **settings: Any) -> None:
        super().__init__(groups, **settings)
        self.clip = clip
        self.overflow = False
        self._global_grad_norm = 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Clip and update, or set ``overflow`` and change nothing."""
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
        self._global_grad_norm = norm.item()
        self.overflow = not math.isfinite(self._global_grad_norm)
        if self.overflow:
            return
        if self.clip and self._global_grad_norm > self.clip:
            torch._foreach_mul_(gradients, self.clip / (self._global_grad_norm + 1e-6))
        super().step(closure)


def build_optimizer(
    model: nn.Module, config: Config, *, guarded: bool, on_cpu: bool
) -> torch.optim.Optimizer:
    """The optimizer to hand to DeepSpeed.

    Args:
        guarded: no ZeRO optimizer will wrap it (stage 0, fp32): it clips and skips itself.
        on_cpu: the optimizer's step runs on the CPU (no GPU, or optimizer offload).
    """
    settings = config.optimizer
    groups = parameter_groups(model, settings.weight_decay)
    common: dict[str, Any] = {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps}
    if guarded:
        return GuardedAdamW(groups, settings.clip, fused=True, **common)
    if settings.impl == "torch":
        return torch.optim.AdamW(groups, fused=True, **common)
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam  # compiled at first use

    if on_cpu:
        return DeepSpeedCPUAdam(groups, adamw_mode=True, **common)
    return FusedAdam(groups, adam_w_mode=True, **common)
