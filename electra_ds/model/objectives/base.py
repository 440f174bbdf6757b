"""What all objectives share: embeddings, generator, masked-language-model head, and the sum of the losses."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from electra_ds.config.schema import Config
from electra_ds.config.shapes import EncoderShape, generator_shape
from electra_ds.data.batch import Batch
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model import stats
from electra_ds.model.context import StepContext, StepOutput
from electra_ds.model.embeddings import Embeddings
from electra_ds.model.encoder import Encoder
from electra_ds.model.heads import VocabularyHead
from electra_ds.model.losses import focal
from electra_ds.model.sampling import Distribution, generator_weights, log_prob, scan
from electra_ds.model.slots import Slots


@dataclass
class Prediction:
    """The generator's view of the masked slots."""

    hidden: Tensor  # (N, H_g)
    logits: Tensor  # (N, V')


def at_least_one(count: Tensor | float) -> Tensor | float:
    """Return a count to divide by; a batch without a single masked position has zero loss, not NaN."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1.0)


class JointModel(nn.Module):
    """An objective: all its networks in one module, so that one engine and one optimizer train them.

    Subclasses define ``forward``, and ``loss_weights``: the factor of each loss by its name.
    """

    loss_weights: dict[str, float]
    carried_sums: tuple[str, ...] = ()  # names of the sums that ``carry`` reads

    def __init__(self, config: Config, vocab: Vocabulary) -> None:
        super().__init__()
        model = config.model
        self.objective = config.objective
        self.vocab = vocab
        self.dropout = model.dropout
        self.positions = None if model.positions == "relative" else model.max_positions
        self.embeddings = Embeddings(vocab.padded_size, model.embedding, self.positions, model.dropout)
        self.generator = self._encoder(config, generator_shape(config))
        self.mlm_head = self._vocabulary_head()
        self.loss_weights = {"mlm": config.objective.mlm_weight}

    def _encoder(self, config: Config, shape: EncoderShape) -> Encoder:
        model = config.model
        return Encoder(shape, model.embedding, model.positions, model.dropout)

    def _vocabulary_head(self) -> VocabularyHead:
        rows, embedding = self.embeddings.word.weight.shape
        return VocabularyHead(self.generator.shape.hidden, embedding, rows)

    def forward(self, batch: Batch, context: StepContext) -> StepOutput:
        """Return loss and statistics of one micro-batch."""
        raise TypeError(f"{type(self).__name__} is no objective by itself")

    def initial_carry(self) -> dict[str, Tensor]:
        """Return what the first step finds as ``context.carried``."""
        return {}

    def carry(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the next step is to find, from the global step's ``carried_sums``, on the device."""
        return {}

    def networks(self) -> dict[str, Encoder]:
        """Return the encoders by name."""
        return {"generator": self.generator}

    def tags(self, sums: dict[str, Tensor]) -> dict[str, float]:
        """Return what is shown to people, from sums over any number of steps, on the CPU."""
        tags = {"loss/total": 0.0}
        for name, weight in self.loss_weights.items():
            tags[f"loss/{name}"] = stats.ratio(sums, f"loss_{name}", "tokens" if name == "rtd" else "masked")
            tags["loss/total"] += weight * tags[f"loss/{name}"]
        return tags | stats.generator_tags(sums)

    def output(self, losses: dict[str, Tensor], sums: dict[str, Tensor], context: StepContext) -> StepOutput:
        """Weigh the summed losses by their factors and by the counts of the global batch."""
        total = torch.zeros((), dtype=torch.float32, device=losses["mlm"].device)
        for name, loss in losses.items():
            count = context.num_tokens if name == "rtd" else context.num_masked
            total = total + self.loss_weights[name] * loss / at_least_one(count)
            sums[f"loss_{name}"] = stats.add(loss)
        return StepOutput(total, sums)

    def generate(self, batch: Batch, slots: Slots, deterministic: bool = False) -> Prediction:
        """Run the generator on the rows with [MASK] at the slots."""
        masked = slots.put(self.vocab.mask_id)
        embedded = self.embeddings(masked, batch.token_type_ids, batch.position_ids, deterministic)
        states = self.generator(embedded, batch.segments if batch.needs_mask else None, deterministic)
        hidden = slots.gather(states)
        logits = self.mlm_head(self.mlm_head.transform(hidden), self.embeddings.word)
        return Prediction(hidden, logits)

    def masked_language_model(
        self, prediction: Prediction, slots: Slots, draw: bool
    ) -> tuple[Tensor, Distribution]:
        """Return the summed (focal) loss at the slots, and p_G, drawn from on demand."""
        logits, size = prediction.logits, self.vocab.size
        weights = generator_weights(logits, size, temperature=1.0, excluded=None)
        distribution = scan(weights, logits, slots.draws if draw else None)
        log_p = log_prob(logits, distribution.log_total, slots.targets, size)
        return (focal(log_p, self.objective.focal_gamma) * slots.used).sum(), distribution
