"""Masked language modelling: BERT's objective without next-sentence prediction, the baseline."""

from torch import Tensor

from electra_ds.data.batch import Batch
from electra_ds.model import stats
from electra_ds.model.context import StepContext, StepOutput
from electra_ds.model.objectives.base import JointModel
from electra_ds.model.slots import Slots


class MaskedLanguageModel(JointModel):
    """One network of full size, called the generator."""

    def forward(self, batch: Batch, context: StepContext) -> StepOutput:
        """Return loss and statistics of one micro-batch."""
        slots = Slots.of(batch)
        loss, p_g = self.masked_language_model(self.generate(batch, slots), slots, draw=False)
        sums: dict[str, Tensor] = stats.generator_sums(p_g.best, p_g.max_prob, slots.targets, slots.used)
        return self.output({"mlm": loss}, sums, context)
