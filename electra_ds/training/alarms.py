"""Sentences for runs that look healthy and are not.

A discriminator that answers a constant has a loss of about 0.39 and an accuracy of 0.86, so the alarms look
at AUC, recall and what is sampled, never at the loss alone. Each speaks when its state begins.
"""

from electra_ds.config.schema import Config

_PATIENCE = 3  # log lines in a row before an alarm speaks

_SENTENCES = {
    "data_wait": "training waits for data more than 10 % of the time: raise data.workers",
    "constant": "the discriminator calls everything original (recall below 0.1 %, AUC near 0.5): lower"
    " optimizer.lr, lengthen the warm-up, or make the generator smaller",
    "too_strong": "fewer than 2 % of the masked positions are really replaced, the generator is too strong:"
    " lower model.generator.width or raise objective.temperature",
    "stalled": "the generator's accuracy does not move: look at optimizer.lr, and at the text itself",
}


class Alarms:
    """Keeps for each alarm how long its condition has held."""

    def __init__(self, config: Config) -> None:
        self._warmup = config.optimizer.warmup_steps
        self._held = dict.fromkeys(_SENTENCES, 0)
        self._best_accuracy = 0.0
        self._stalled_since = 0

    def check(self, step: int, values: dict[str, float]) -> list[str]:
        """Return the sentences to show after a log line with these tags."""
        warm = step > self._warmup
        has_discriminator = "discriminator/recall" in values
        holds = {
            "data_wait": values.get("perf/data_wait", 0.0) > 0.1,
            "constant": warm
            and has_discriminator
            and values["discriminator/recall"] < 0.001
            and values["discriminator/auc"] < 0.55,
            "too_strong": warm and has_discriminator and values["generator/sampled_original"] > 0.98,
            "stalled": warm and self._is_stalled(step, values.get("generator/accuracy", 1.0)),
        }
        sentences = []
        for name, held in holds.items():
            self._held[name] = self._held[name] + 1 if held else 0
            if self._held[name] == _PATIENCE:
                sentences.append(_SENTENCES[name])
        return sentences

    def _is_stalled(self, step: int, accuracy: float) -> bool:
        """Whether a low accuracy has set no new record for long."""
        if accuracy > self._best_accuracy + 1e-4:
            self._best_accuracy, self._stalled_since = accuracy, step
        return self._best_accuracy < 0.1 and step - self._stalled_since > 2 * max(self._warmup, 1000)
