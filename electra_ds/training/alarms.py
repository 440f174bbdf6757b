"""Sentences for runs that look healthy and are not.

A discriminator that answers a constant has a loss of about 0.39 and an accuracy of 0.86, so the alarms look
at AUC, recall and what is sampled, never at the loss alone. Each speaks when its state begins.
"""

from electra_ds.config.schema import Config

_PATIENCE = 3  # log lines in a row before an alarm speaks


class Alarms:
    """Keeps for each alarm how long its condition has held."""

    def __init__(self, config: Config) -> None:
        self._warmup = config.optimizer.warmup_steps
        self._held: dict[str, int] = {}
        self._best_accuracy = 0.0
        self._stalled_since = 0

    def check(self, step: int, values: dict[str, float]) -> list[str]:
        """Return the sentences to show after a log line with these tags."""
        data_wait = values.get("perf/data_wait", 0.0)
        conditions = {
            f"training waits for data {100 * data_wait:.0f} % of the time: raise data.workers": data_wait > 0.1,
        }
        if step > self._warmup and "discriminator/recall" in values:
            recall, auc = values["discriminator/recall"], values["discriminator/auc"]
            replaced = 1 - values.get("generator/sampled_original", 0.0)
            conditions |= {
                "the discriminator calls everything original (recall < 0.1 %, AUC near 0.5): lower optimizer.lr,"
                " lengthen the warm-up, or make the generator smaller": recall < 0.001 and auc < 0.55,
                "fewer than 2 % of the masked positions are really replaced: the generator is too strong; lower"
                " model.generator.width or raise objective.temperature": replaced < 0.02,
            }
        if step > self._warmup and "generator/accuracy" in values:
            if values["generator/accuracy"] > self._best_accuracy + 1e-4:
                self._best_accuracy, self._stalled_since = values["generator/accuracy"], step
            still = step - self._stalled_since
            conditions[
                "the generator's accuracy does not move: look at optimizer.lr, and at the text itself"
            ] = self._best_accuracy < 0.1 and still > 2 * max(self._warmup, 1000)
        return [name for name, holds in conditions.items() if self._begins(name.split(":")[0][:24], holds)]

    def _begins(self, key: str, holds: bool) -> bool:
        self._held[key] = self._held.get(key, 0) + 1 if holds else 0
        return self._held[key] == _PATIENCE
