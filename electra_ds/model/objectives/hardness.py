"""What both forms of hardness prediction (Hao et al. 2021) share.

A sampling head on the generator's encoder learns which replacements the discriminator finds hard, and the
replacements are drawn from its p_S instead of p_G. Drawing from q and weighting by p_G / q estimates
Z = E_{p_G}[L_D], with variance zero exactly for q = p_S* = p_G L_D / Z.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from electra_ds.config.schema import Config
from electra_ds.data.batch import Batch
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model import stats
from electra_ds.model.context import StepContext, StepOutput
from electra_ds.model.losses import clipped_weight
from electra_ds.model.objectives.base import Prediction
from electra_ds.model.objectives.electra import ReplacedTokenDetection
from electra_ds.model.sampling import Distribution
from electra_ds.model.slots import Slots

_LEAST_MEAN = 1e-6  # a running mean divides; a discriminator without any loss must not make that infinite


@dataclass
class Drawn:
    """The words put into the slots, and how their proposal q relates to p_G; (N,) each."""

    words: Tensor  # int64
    log_p_g: Tensor  # fp32
    log_ratio: Tensor  # fp32, log p_G(word) - log q(word)


@dataclass
class HeadState:
    """What the sampling head makes of the generator's hidden states."""

    scores: Tensor  # with gradient: the states (N, E) of HP-Loss, the logits (N, V') of HP-Dist
    p_s: Distribution | None = None  # HP-Dist's, which needs no estimate of L_D


@dataclass
class Hardness:
    """What the sampling head is taught from, per slot; (N,) each, detached."""

    logit: Tensor  # the discriminator's, positive for "replaced"
    loss: Tensor  # L_D of the drawn word
    weight: Tensor  # clipped p_G / q
    normalizer: Tensor | float  # Z of the previous step


class HardnessPrediction(ReplacedTokenDetection):
    """ELECTRA whose replacements are drawn from a learned p_S."""

    carried_sums = ("masked", "weight", "weighted_hardness")

    def __init__(self, config: Config, vocab: Vocabulary) -> None:
        super().__init__(config, vocab)
        self.hp = config.objective.hp
        self.loss_weights["hp"] = self.hp.weight

    @abstractmethod
    def prepare(self, prediction: Prediction, slots: Slots, draw: bool) -> HeadState:
        """Run the sampling head; ``draw`` says whether words will be drawn from this very pass."""

    @abstractmethod
    def draw(self, head: HeadState, view: Prediction, slots: Slots) -> Distribution:
        """Return p_S of ``view``, drawn from; called without gradient."""

    @abstractmethod
    def teach(self, head: HeadState, drawn: Drawn, hardness: Hardness, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return L_S per slot (N,) and the head's estimate (N,) of something that L_D is proportional to."""

    def forward(self, batch: Batch, context: StepContext) -> StepOutput:
        """Return loss and statistics of one micro-batch."""
        slots = Slots.of(batch)
        from_generator = context.proposal == "generator" or context.step < self.hp.start_step
        prediction = self.generate(batch, slots)
        mlm, p_g = self.masked_language_model(prediction, slots, draw=from_generator)
        view = self.sampling_view(batch, slots, prediction)
        base = self.generator_proposal(view, prediction, p_g, slots, draw=from_generator)
        head = self.prepare(prediction, slots, draw=not from_generator and view is prediction)
        if from_generator:
            drawn = Drawn(base.sampled, base.sampled_log_prob, torch.zeros_like(slots.used))
        else:
            drawn = self._draw_hard(head if view is prediction else None, view, base, slots)

        detection = self.detect(batch, slots, drawn.words)
        weight, clipped = clipped_weight(drawn.log_ratio, self.hp.weight_clip)
        hardness = Hardness(
            logit=slots.gather(detection.logits.detach()),
            loss=slots.gather(detection.token_loss.detach()),
            weight=weight,
            normalizer=self._carried(context, "hp_z"),
        )
        taught, estimate = self.teach(head, drawn, hardness, slots)
        token_loss = detection.token_loss
        if self.objective.importance_weighting:
            share = weight / self._carried(context, "hp_weight")
            token_loss = token_loss * (1 + slots.spread(share - 1))
        losses = {"mlm": mlm, "rtd": token_loss.sum(), "hp": (taught * slots.used).sum()}
        sums = self.common_sums(slots, p_g, drawn.words) | detection.sums
        sums |= stats.hardness_sums(weight, clipped, estimate, hardness.loss, slots.used)
        return self.output(losses, sums, context)

    @torch.no_grad()
    def _draw_hard(self, head: HeadState | None, view: Prediction, p_g: Distribution, slots: Slots) -> Drawn:
        """Draw from p_S of ``view``; ``head`` is the sampling head's state where it has been run on it."""
        if head is None:
            head = self.prepare(view, slots, draw=True)
        p_s = self.draw(head, view, slots)
        logit = view.logits.gather(1, p_s.sampled[:, None]).squeeze(1).float()
        log_p_g = logit / self.objective.temperature - p_g.log_total
        return Drawn(p_s.sampled, log_p_g, log_p_g - p_s.sampled_log_prob)

    def _carried(self, context: StepContext, name: str) -> Tensor | float:
        return 1.0 if self.hp.normalizer == "one" else context.carried.get(name, 1.0)

    def initial_carry(self) -> dict[str, Tensor]:
        """Return Z and the mean weight before anything is known: 1."""
        device = self.mlm_head.bias.device
        return {name: torch.ones((), device=device) for name in ("hp_z", "hp_weight")}

    def carry(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the global means of (p_G / q) L_D and of p_G / q, clipped; 1 where nothing was masked."""

        def mean(name: str) -> Tensor:
            value = (sums[name] / sums["masked"]).float()
            return torch.where(value.isfinite(), value.clamp(min=_LEAST_MEAN), torch.ones_like(value))

        return {"hp_z": mean("weighted_hardness"), "hp_weight": mean("weight")}

    def tags(self, sums: dict[str, Tensor]) -> dict[str, float]:
        """Return what is shown to people, from sums over any number of steps, on the CPU."""
        return super().tags(sums) | stats.hardness_tags(sums)

    def head_input(self, hidden: Tensor) -> Tensor:
        """Return the hidden states that the sampling head sees."""
        return hidden.detach() if self.hp.detach_encoder else hidden

    @property
    def word_is_original(self) -> bool:
        """Whether a drawn word can count as original at all."""
        return self.objective.correct_is == "original"
