"""What a run says before its first step, and all that ``--dry-run`` says."""

from typing import Any

from electra_ds.config.derived import BatchPlan
from electra_ds.config.loading import dump
from electra_ds.config.schema import Config
from electra_ds.config.shapes import discriminator_shape, generator_shape
from electra_ds.model.size import count_parameters, flops_per_token
from electra_ds.training.engine import half_precision, zero_stage


def opening_lines(
    config: Config, ds_config: dict[str, Any], plan: BatchPlan, steps: int, vocab_size: int, accelerator: str
) -> list[str]:
    """The lines that state sizes, cost, batch and length of a run."""
    counts = count_parameters(config, vocab_size)
    flops = flops_per_token(config, vocab_size)
    rows = plan.batch * steps
    parts = ", ".join(f"{name} {_short(number)}" for name, number in counts.items() if name != "total")
    return [
        f"objective   {config.objective.name}, positions {config.model.positions}",
        f"networks    {_networks(config)}",
        f"parameters  {_short(counts['total'])} ({parts})",
        f"cost        {flops / 1e9:.4g} GFLOP a token, {flops * rows * config.data.seq_len:.3g} FLOP the run",
        f"batch       {plan.equation}, {config.data.seq_len} tokens a row",
        f"length      {steps:,} steps, {_short(rows * config.data.seq_len)} tokens to be seen",
        f"memory      {_state_gib(counts['total'], ds_config, plan.world_size):.2f} GiB a rank for weights,"
        " gradients and optimizer; activations come on top",
        f"engine      ZeRO-{zero_stage(ds_config)}, {_precision(ds_config)},"
        f" {plan.world_size} x {accelerator}",
        f"export      {export_kind(config)}",
    ]


def dry_run_text(config: Config, lines: list[str], vocab_source: str) -> str:
    """The resolved configuration and the opening lines."""
    return f"{dump(config)}\n" + "\n".join([*lines, f"vocabulary  {vocab_source}"])


def export_kind(config: Config) -> str:
    """As what the run will leave through ``electra-ds export``."""
    if config.model.positions == "absolute":
        return "stock ELECTRA folders, loaded by transformers without custom code"
    return "folders with their own modelling file (relative positions), loaded with trust_remote_code=True"


def _networks(config: Config) -> str:
    shapes = {"generator": generator_shape(config)}
    if config.objective.name == "mlm":
        shapes = {"encoder": shapes["generator"]}
    else:
        shapes["discriminator"] = discriminator_shape(config)
    return "; ".join(
        f"{name} {shape.layers} layers, hidden {shape.hidden}, heads {shape.heads}, feed-forward {shape.ffn}"
        for name, shape in shapes.items()
    )


def _precision(ds_config: dict[str, Any]) -> str:
    for name in ("bf16", "fp16", "torch_autocast"):
        if ds_config.get(name, {}).get("enabled", False):
            return name
    return "fp32"


def _state_gib(parameters: int, ds_config: dict[str, Any], world_size: int) -> float:
    """Weights, gradients and Adam's state of one rank; what ZeRO shares out is divided by the ranks."""
    stage = zero_stage(ds_config)
    half = half_precision(ds_config) and "torch_autocast" not in ds_config
    weights, gradients = (2, 4) if half else (4, 4)
    state = 12 if half else 8  # moments, and an fp32 copy of half-precision weights
    if not half and stage in (1, 2):
        state += 4  # DeepSpeed keeps a flat fp32 copy there too
    per_parameter = (
        weights / (world_size if stage == 3 else 1)
        + gradients / (world_size if stage >= 2 else 1)
        + state / (world_size if stage >= 1 else 1)
    )
    return parameters * per_parameter / 2**30


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:.0f}"
