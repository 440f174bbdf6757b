"""Builds the parts of a run in the order in which they depend on each other."""

import argparse
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra_ds.config.derived import BatchPlan
from electra_ds.config.errors import EXIT_DONE, InputError
from electra_ds.config.schema import Config
from electra_ds.data.loader import TrainLoader, eval_batches
from electra_ds.data.manifest import Manifest
from electra_ds.model.build import build_model
from electra_ds.model.size import flops_per_token
from electra_ds.training.checkpoint import read_marker
from electra_ds.training.distributed import Ranks
from electra_ds.training.engine import TrainingEngine, half_precision
from electra_ds.training.environment import describe_environment
from electra_ds.training.loop import Progress, Run
from electra_ds.training.meters import Window, peak_flops
from electra_ds.training.monitor import Monitor
from electra_ds.training.opening import opening_lines
from electra_ds.training.reporter import Reporter, start_logging
from electra_ds.training.run_folder import DS_CONFIG, ENVIRONMENT, RunFolder, Start

log = logging.getLogger("electra_ds")


def already_done(folder: RunFolder, start: Start, steps: int, ranks: Ranks) -> int:
    """Say that a run has reached its last step; returns the exit code."""
    if ranks.is_first:
        start_logging(folder)
        log.info("%s has already done its %d steps; raise train.steps to go on", folder.path, steps)
        log.info("next: electra-ds export %s --output %s", folder.path, folder.path / "export")
        folder.write_status("finished", start.step, EXIT_DONE)
    return EXIT_DONE


def build_run(
    args: argparse.Namespace,
    config: Config,
    ds_config: dict[str, Any],
    plan: BatchPlan,
    steps: int,
    ranks: Ranks,
    folder: RunFolder,
    manifest: Manifest,
    start: Start,
) -> Run:
    """Model, engine, resumed state, loader and reporter; all ranks call it."""
    own_folder = folder if ranks.is_first else None
    start_logging(own_folder)
    peak, peak_source = peak_flops(ranks, half_precision(ds_config))
    flops = flops_per_token(config, manifest.vocab.size)
    if ranks.is_first:
        folder.write_json(DS_CONFIG, ds_config)
        folder.write_json(ENVIRONMENT, describe_environment(ranks))
        for line in opening_lines(config, ds_config, plan, steps, manifest.vocab.size, ranks.device.type):
            log.info("%s", line)
        log.info("mfu         of %.3g FLOP/s a rank (%s)", peak, peak_source)
    engine = TrainingEngine(build_model(config, manifest.vocab), config, ds_config, plan, steps, ranks)
    progress = Progress()
    if start.checkpoint is not None:
        progress = resume(engine, folder, start, ranks)
    if own_folder is not None:
        own_folder.cut_metrics(start.step)
    loader = TrainLoader(
        args.data,
        config.data,
        config.seed,
        batch=plan.batch,
        micro_batch=plan.micro_batch,
        rank=ranks.rank,
        world_size=ranks.world_size,
        state=progress.cursors,
        pin=ranks.on_gpu,
    )
    reporter = Reporter(
        config,
        steps,
        plan,
        ranks,
        manifest,
        folder=own_folder,
        monitor=Monitor(folder.path, ds_config, start.step) if ranks.is_first else None,
        flops_per_token=flops,
        peak=peak,
        start_step=start.step,
    )
    if ranks.is_first:
        folder.write_status("running", start.step, pids=reporter.pids)
    held_out = _held_out(args.eval_data, config, plan, ranks)
    return Run(config, steps, plan, ranks, engine, loader, held_out, reporter, folder.path, progress)


def resume(engine: TrainingEngine, folder: RunFolder, start: Start, ranks: Ranks) -> Progress:
    """Load a checkpoint into the engine and return where the run was."""
    assert start.checkpoint is not None
    marker = read_marker(start.checkpoint)
    check_topology(
        start.checkpoint, marker.world_size, marker.zero_stage, ranks.world_size, engine.zero_stage
    )
    state = engine.load(str(start.checkpoint.parent), start.checkpoint.name)
    if ranks.is_first:
        for reason in start.passed_over:
            log.warning("warning: passed over a checkpoint: %s", reason)
        log.info("resumed after step %d from %s", start.step, start.checkpoint)
    return Progress(
        step=state["step"],
        real_tokens=state["real_tokens"],
        skipped=state["skipped"],
        cursors=state["cursors"],
        window=Window.restored(state["window"], ranks),
    )


def check_topology(checkpoint: Path, saved_ranks: int, saved_stage: int, ranks: int, stage: int) -> None:
    """Refuse what DeepSpeed's loader cannot take: sharded optimizer state of another world size or stage."""
    if (saved_ranks, saved_stage) == (ranks, stage) or saved_stage == stage == 0:
        return
    raise InputError(
        f"{checkpoint}: written by {saved_ranks} ranks at ZeRO stage {saved_stage}, but this is {ranks}"
        f" ranks at stage {stage}; resume with the same"
    )


def _held_out(shards: Path | None, config: Config, plan: BatchPlan, ranks: Ranks) -> Callable[[], Any] | None:
    if shards is None:
        return None
    return lambda: eval_batches(
        shards,
        config.data,
        config.seed,
        micro_batch=plan.micro_batch,
        rank=ranks.rank,
        world_size=ranks.world_size,
        max_rows=config.train.eval_rows,
    )
