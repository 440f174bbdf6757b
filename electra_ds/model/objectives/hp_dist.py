"""HP-Dist: the sampling head gives p_S directly and minimises KL(p_S* || p_S), p_S* = p_G L_D / Z."""

from torch import Tensor

from electra_ds.config.schema import Config
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model.heads import SamplingHead
from electra_ds.model.losses import clipped_weight, hardness_distribution
from electra_ds.model.objectives.base import Prediction
from electra_ds.model.objectives.hardness import Drawn, Hardness, HardnessPrediction, HeadState
from electra_ds.model.sampling import Distribution, generator_weights, log_prob, scan
from electra_ds.model.slots import Slots


class HardnessByDistribution(HardnessPrediction):
    """The head's logits are those of p_S."""

    def __init__(self, config: Config, vocab: Vocabulary) -> None:
        super().__init__(config, vocab)
        rows, embedding = self.embeddings.word.weight.shape
        self.sampling_head = SamplingHead(self.generator.shape.hidden, embedding, rows, self.hp.head)

    def prepare(self, prediction: Prediction, slots: Slots, draw: bool) -> HeadState:
        """Return the logits (N, V') of p_S and the distribution itself."""
        states = self.sampling_head.transform(self.head_input(prediction.hidden))
        base, temperature = prediction.logits, self.objective.temperature
        logits = self.sampling_head.logits(
            states,
            self.embeddings.word,
            generator_logits=base if temperature == 1 else base / temperature,
            detach_table=self.hp.detach_encoder,
        )
        weights = generator_weights(logits.detach(), self.vocab.size, 1.0, self.excluded(slots))
        return HeadState(logits, scan(weights, logits, slots.draws if draw else None))

    def draw(self, head: HeadState, view: Prediction, slots: Slots) -> Distribution:
        """Return p_S, which :meth:`prepare` has drawn from."""
        assert head.p_s is not None
        return head.p_s

    def teach(self, head: HeadState, drawn: Drawn, hardness: Hardness, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return the weighted log loss of the drawn words, and p_S / p_G, which is to become L_D / Z."""
        assert head.p_s is not None
        size, excluded = self.vocab.size, self.excluded(slots)
        log_p_s = log_prob(head.scores, head.p_s.log_total, drawn.words, size, excluded)
        loss = hardness_distribution(log_p_s, hardness.weight, hardness.loss, hardness.normalizer)
        # bounded like the weights: a few words of vanishing p_G would drown the correlation with L_D
        estimate, _ = clipped_weight(log_p_s.detach() - drawn.log_p_g, self.hp.weight_clip)
        return loss, estimate
