"""HP-Loss: the sampling head predicts what the discriminator will say to a word; p_S is p_G x that loss."""

import torch
from torch import Tensor

from electra_ds.config.schema import Config
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model.losses import hardness_regression
from electra_ds.model.objectives.base import Prediction
from electra_ds.model.objectives.hardness import Drawn, Hardness, HardnessPrediction, HeadState
from electra_ds.model.sampling import (
    Distribution,
    generator_weights,
    hardness_weights,
    log_hardness,
    scan,
)
from electra_ds.model.slots import Slots


class HardnessByLoss(HardnessPrediction):
    """The head's score of a word is the logit of "the discriminator will call it original"."""

    def __init__(self, config: Config, vocab: Vocabulary) -> None:
        super().__init__(config, vocab)
        self.sampling_head = self._vocabulary_head()

    def prepare(self, prediction: Prediction, slots: Slots, draw: bool) -> HeadState:
        """Return the head's states (N, E); words are scored once it is known which."""
        return HeadState(self.sampling_head.transform(self.head_input(prediction.hidden)))

    def draw(self, head: HeadState, view: Prediction, slots: Slots) -> Distribution:
        """Draw from p_G x estimated loss over the whole vocabulary."""
        size, temperature = self.vocab.size, self.objective.temperature
        base = generator_weights(view.logits, size, temperature, self.excluded(slots))
        # all words are scored without gradient: only the drawn one's score is trained
        scores = self.sampling_head(head.scores, self.embeddings.word)
        original = slots.targets if self.word_is_original else None
        return scan(hardness_weights(base, scores, size, original), scores, slots.draws)

    def teach(self, head: HeadState, drawn: Drawn, hardness: Hardness, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy against the discriminator's probability, and the estimated loss."""
        detach = self.hp.detach_encoder
        score = self.sampling_head(head.scores, self.embeddings.word, drawn.words, detach_table=detach)
        counts_as_original = (drawn.words == slots.targets) & self.word_is_original
        error = torch.where(counts_as_original, -score, score).detach()
        return hardness_regression(score, hardness.logit), log_hardness(error).exp()
