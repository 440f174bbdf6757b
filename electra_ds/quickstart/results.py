"""What a run came to, read from its ``metrics.jsonl``."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from electra_ds.config.errors import RunFailure

LEAST_AUC = 0.70
_AUC = "eval/discriminator/auc"


@dataclass(frozen=True)
class Results:
    """The last numbers of a run. Losses by name: total, mlm, rtd, hp."""

    step: int
    losses: dict[str, float]
    heldout_losses: dict[str, float]
    heldout_auc: float  # all tokens, replacements drawn from p_G
    tokens_per_s: float  # all ranks; median over the log steps

    def lines(self) -> list[str]:
        """Say it."""
        return [
            f"after {self.step} steps        training  {_listed(self.losses)}",
            f"                       held-out  {_listed(self.heldout_losses)}",
            f"held-out AUC of the discriminator over all tokens  {self.heldout_auc:.3f}  (chance: 0.500)",
            f"speed                                               {self.tokens_per_s:,.0f} tokens/s",
        ]


def _listed(losses: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in losses.items())


def read_results(run: Path) -> Results:
    """Read the last evaluation and the last log line. Raises RunFailure if there is none."""
    path = run / "metrics.jsonl"
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # cut off by a crash
    evaluated = [record for record in records if _AUC in record]
    logged = [record for record in records if "loss/total" in record]
    if not evaluated or not logged:
        raise RunFailure(f"{path}: holds no held-out evaluation; remove the work folder and begin anew")
    return Results(
        step=evaluated[-1]["step"],
        losses=_losses(logged[-1], "loss/"),
        heldout_losses=_losses(evaluated[-1], "eval/loss/"),
        heldout_auc=evaluated[-1][_AUC],
        tokens_per_s=statistics.median(r["perf/tokens_per_s"] for r in logged if "perf/tokens_per_s" in r),
    )


def _losses(record: dict[str, float], prefix: str) -> dict[str, float]:
    return {tag.removeprefix(prefix): value for tag, value in record.items() if tag.startswith(prefix)}
