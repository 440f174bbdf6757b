"""ELECTRA (Clark et al. 2020): a generator fills masked positions, a discriminator finds what it replaced."""

from dataclasses import dataclass

import torch
from torch import Tensor

from electra_ds.config.schema import Config
from electra_ds.config.shapes import discriminator_shape
from electra_ds.data.batch import Batch
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model import stats
from electra_ds.model.context import StepContext, StepOutput
from electra_ds.model.embeddings import EmbeddingDeltas, Embeddings
from electra_ds.model.encoder import Encoder
from electra_ds.model.heads import ReplacedTokenHead
from electra_ds.model.losses import replaced_token_detection
from electra_ds.model.objectives.base import JointModel, Prediction
from electra_ds.model.sampling import Distribution, generator_weights, scan
from electra_ds.model.slots import Slots


@dataclass
class Detection:
    """The discriminator's answer to one filling of the slots; (B, L) each."""

    logits: Tensor  # positive for "replaced"
    token_loss: Tensor  # fp32, 0 at padding
    sums: dict[str, Tensor]


class ReplacedTokenDetection(JointModel):
    """Generator and discriminator; the replacements are drawn from p_G."""

    def __init__(self, config: Config, vocab: Vocabulary) -> None:
        super().__init__(config, vocab)
        model = config.model
        self.sharing = model.embedding_sharing
        self.discriminator_embeddings: Embeddings | EmbeddingDeltas | None = None
        if self.sharing == "none":
            self.discriminator_embeddings = Embeddings(
                vocab.padded_size, model.embedding, self.positions, model.dropout
            )
        elif self.sharing == "gdes":
            self.discriminator_embeddings = EmbeddingDeltas(
                vocab.padded_size, model.embedding, self.positions
            )
        self.discriminator = self._encoder(config, discriminator_shape(config))
        self.rtd_head = ReplacedTokenHead(model.hidden)
        self.loss_weights["rtd"] = config.objective.rtd_weight

    def forward(self, batch: Batch, context: StepContext) -> StepOutput:
        """Return loss and statistics of one micro-batch."""
        slots = Slots.of(batch)
        prediction = self.generate(batch, slots)
        mlm, p_g = self.masked_language_model(prediction, slots, draw=True)
        view = self.sampling_view(batch, slots, prediction)
        proposal = self.generator_proposal(view, prediction, p_g, slots)
        detection = self.detect(batch, slots, proposal.sampled)
        sums = self.common_sums(slots, p_g, proposal.sampled) | detection.sums
        return self.output({"mlm": mlm, "rtd": detection.token_loss.sum()}, sums, context)

    def networks(self) -> dict[str, Encoder]:
        """Return the encoders by name."""
        return {"generator": self.generator, "discriminator": self.discriminator}

    def tags(self, sums: dict[str, Tensor]) -> dict[str, float]:
        """Return what is shown to people, from sums over any number of steps, on the CPU."""
        sampled = {"generator/sampled_original": stats.ratio(sums, "sampled_original", "masked")}
        return super().tags(sums) | sampled | stats.discriminator_tags(sums)

    def sampling_view(self, batch: Batch, slots: Slots, prediction: Prediction) -> Prediction:
        """Return the prediction to sample from: that of training, or one of a second pass without dropout."""
        if self.objective.sample_with_dropout or self.dropout == 0 or not self.training:
            return prediction
        with torch.no_grad():
            return self.generate(batch, slots, deterministic=True)

    def excluded(self, slots: Slots) -> Tensor | None:
        """Return the words (N,) that may not be drawn: the original ones, on demand."""
        return slots.targets if self.objective.disallow_correct else None

    def generator_proposal(
        self, view: Prediction, trained: Prediction, p_g: Distribution, slots: Slots, draw: bool = True
    ) -> Distribution:
        """Return p_G as it is sampled from: at its temperature, without excluded words, from ``view``.

        ``p_g`` is the distribution of ``trained`` at temperature 1; where it is the same it is used again
        instead of passing over the vocabulary a second time.
        """
        excluded, temperature = self.excluded(slots), self.objective.temperature
        if view is trained and excluded is None and temperature == 1:
            return p_g
        weights = generator_weights(view.logits.detach(), self.vocab.size, temperature, excluded)
        return scan(weights, view.logits, slots.draws if draw else None)

    def detect(self, batch: Batch, slots: Slots, words: Tensor) -> Detection:
        """Put ``words`` (N,) into the slots and let the discriminator judge every token.

        A word that equals the original counts as original, unless ``objective.correct_is`` says "replaced".
        """
        corrupted = slots.put(words)
        is_real, is_masked = batch.segments > 0, slots.is_masked()
        is_replaced = is_masked if self.objective.correct_is == "replaced" else corrupted != batch.input_ids
        embedded = self._embed_corrupted(corrupted, batch)
        states = self.discriminator(embedded, batch.segments if batch.needs_mask else None)
        logits = self.rtd_head(states)
        return Detection(
            logits=logits,
            token_loss=replaced_token_detection(logits, is_replaced) * is_real,
            sums=stats.discriminator_sums(logits, is_replaced, is_real, is_masked),
        )

    def _embed_corrupted(self, corrupted: Tensor, batch: Batch) -> Tensor:
        own = self.discriminator_embeddings
        if isinstance(own, EmbeddingDeltas):
            return own(corrupted, batch.token_type_ids, batch.position_ids, self.embeddings)
        return (own or self.embeddings)(corrupted, batch.token_type_ids, batch.position_ids)

    def common_sums(self, slots: Slots, p_g: Distribution, words: Tensor) -> dict[str, Tensor]:
        """Return the statistics of the generator and of the words that were drawn."""
        sums = stats.generator_sums(p_g.best, p_g.max_prob, slots.targets, slots.used)
        sums["sampled_original"] = stats.add(words == slots.targets, slots.used)
        return sums
