"""One DeepSpeed engine around the joint model, and one optimizer step of it.

DeepSpeed averages gradients over ranks, and over accumulation steps unless told not to. The objectives give
sums divided by global counts (``StepContext``), so the loss is multiplied by the world size before the
backward pass, and the average becomes the sum again: no mean of means.
"""

import contextlib
import hashlib
import io
import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra_ds.config.derived import BatchPlan
from electra_ds.config.ds_keys import MONITOR_SECTIONS
from electra_ds.config.schema import Config
from electra_ds.data.batch import Batch
from electra_ds.model.context import StepContext
from electra_ds.model.objectives.base import JointModel
from electra_ds.training.distributed import Ranks
from electra_ds.training.meters import Sums, add_sums, reduce_sums
from electra_ds.training.optimizer import build_optimizer, group_values, set_group_values


@dataclass(frozen=True)
class StepResult:
    """The outcome of one optimizer step on this rank."""

    applied: bool  # False: gradients were not finite, and nothing moved
    sums: Sums  # of this rank's micro-batches, on the device
    grad_norm: float | None
    loss_scale: float


class TrainingEngine:
    """The DeepSpeed engine with the project's losses, schedule and random numbers."""

    def __init__(
        self,
        model: JointModel,
        config: Config,
        ds_config: dict[str, Any],
        plan: BatchPlan,
        steps: int,
        ranks: Ranks,
    ) -> None:
        import deepspeed

        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
        self.config, self.plan, self.steps, self.ranks = config, plan, steps, ranks
        self.zero_stage = zero_stage(ds_config)
        offloads = "offload_optimizer" in ds_config.get("zero_optimization", {})
        guarded = self.zero_stage == 0 and not half_precision(ds_config)
        self.model = model.to(ranks.device)
        optimizer = build_optimizer(model, config, guarded=guarded, on_cpu=offloads or not ranks.on_gpu)
        # The monitors are ours to serve (monitor.py); the engine would write its own, nearly empty ones.
        settings = {name: section for name, section in ds_config.items() if name not in MONITOR_SECTIONS}
        if guarded:
            settings["gradient_clipping"] = 0.0  # GuardedAdamW clips
        with _muted():
            self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        self.carried: dict[str, Tensor] = self._on_device(model.initial_carry())

    def _on_device(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.to(self.ranks.device) for name, tensor in tensors.items()}

    def step(self, batches: list[Batch], step: int, num_masked: int, num_tokens: int) -> StepResult:
        """Forward, backward and update ``step`` (0-based) over this rank's micro-batches.

        ``num_masked`` and ``num_tokens`` count the global batch. Nothing here waits for the device, except
        DeepSpeed's own test of the gradient norm in the update.
        """
        engine = self.engine
        engine.train()
        context = StepContext(step=step, num_masked=num_masked, num_tokens=num_tokens, carried=self.carried)
        optimizer = engine.optimizer
        set_group_values(optimizer.param_groups, group_values(self.config.optimizer, step, self.steps))
        sums: Sums = {}
        for micro_step, batch in enumerate(batches):
            if self.config.model.dropout:
                torch.manual_seed(dropout_seed(self.config.seed, step, micro_step, self.ranks.rank))
            output = engine(batch.to(self.ranks.device), context)
            engine.backward(output.loss * self.plan.world_size, scale_wrt_gas=False)
            engine.step()
            sums = add_sums(sums, output.sums)
        applied = engine.was_step_applied()
        if applied and self.carried:
            needed = {name: sums[name] for name in self.model.carried_sums}
            self.carried = self.model.carry(reduce_sums(needed, self.ranks))
        return StepResult(applied, sums, self._grad_norm(), float(getattr(optimizer, "cur_scale", 1.0)))

    def _grad_norm(self) -> float | None:
        norm = self.engine.get_global_grad_norm()
        return None if norm is None else float(norm)

    @torch.no_grad()
    def evaluate(self, batches: Any, step: int) -> Sums:
        """Sums over this rank's held-out batches; replacements are drawn from the generator."""
        self.engine.eval()
        context = StepContext(
            step=step, num_masked=1.0, num_tokens=1.0, carried=self.carried, proposal="generator"
        )
        sums: Sums = {}
        for batch in batches:
            sums = add_sums(sums, self.engine(batch.to(self.ranks.device), context).sums)
        return sums

    def state(self) -> dict[str, Any]:
        """What DeepSpeed does not save by itself."""
        return {"carried": {name: tensor.cpu() for name, tensor in self.carried.items()}}

    def load(self, folder: str, name: str) -> dict[str, Any]:
        """Load a verified checkpoint; returns the client state that was saved with it."""
        with _muted():
            _, client_state = self.engine.load_checkpoint(folder, tag=name)
        self.carried = self._on_device(client_state["carried"])
        return client_state


def _muted() -> contextlib.AbstractContextManager[Any]:
    """Keep DeepSpeed's tables of memory, which it prints whatever its log level, off the terminal."""
    return contextlib.redirect_stdout(io.StringIO())


def zero_stage(ds_config: dict[str, Any]) -> int:
    """The ZeRO stage that a ds_config asks for."""
    return int(ds_config.get("zero_optimization", {}).get("stage", 0))


def half_precision(ds_config: dict[str, Any]) -> bool:
    """Whether the weights are bf16 or fp16 in the forward pass, or matrix products are by autocast."""
    return any(ds_config.get(name, {}).get("enabled", False) for name in ("bf16", "fp16", "torch_autocast"))


def dropout_seed(seed: int, step: int, micro_step: int, rank: int) -> int:
    """A seed of 63 bits, so that dropout differs between ranks and is the same when a step is repeated."""
    key = f"{seed}/{step}/{micro_step}/{rank}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1
