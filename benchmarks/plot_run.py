"""A run's TensorBoard curves as one picture: ``python benchmarks/plot_run.py RUN --output curves.png``."""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# Title of a panel and its tag; the tag under ``eval/`` is drawn beside it.
PANELS = [
    ("generator: cross-entropy at masked positions", "loss/mlm"),
    ("discriminator: cross-entropy over all tokens", "loss/rtd"),
    ("discriminator: AUC over all tokens", "discriminator/auc"),
    ("generator: accuracy at masked positions", "generator/accuracy"),
    ("learning rate", "optim/lr"),
    ("estimated against true hardness: Pearson", "sampling/hardness_correlation"),
]


def read_scalars(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values of each tag in the run's event files."""
    events = EventAccumulator(str(run / "tb"), size_guidance={"scalars": 0})
    events.Reload()
    points = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    return {tag: ([p.step for p in series], [p.value for p in series]) for tag, series in points.items()}


def plot(run: Path, output: Path) -> None:
    """Draw the panels that the run has tags for."""
    scalars = read_scalars(run)
    figure, axes = plt.subplots(2, 3, figsize=(12, 6), layout="constrained")
    for panel, (title, tag) in zip(axes.flat, PANELS, strict=True):
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("step", fontsize=8)
        panel.grid(alpha=0.3)
        if tag in scalars:
            panel.plot(*scalars[tag], linewidth=1.2, label="training")
        if f"eval/{tag}" in scalars:
            panel.plot(*scalars[f"eval/{tag}"], "o-", markersize=4, label="held out")
            panel.legend(fontsize=8)
    figure.savefig(output, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--output", type=Path, required=True, help="the PNG to write")
    arguments = parser.parse_args()
    plot(arguments.run, arguments.output)
