"""The objectives by the name that ``objective.name`` gives; a new one is a new file and a line here."""

from electra_ds.model.objectives.base import JointModel
from electra_ds.model.objectives.electra import ReplacedTokenDetection
from electra_ds.model.objectives.hp_dist import HardnessByDistribution
from electra_ds.model.objectives.hp_loss import HardnessByLoss
from electra_ds.model.objectives.mlm import MaskedLanguageModel

OBJECTIVES: dict[str, type[JointModel]] = {
    "mlm": MaskedLanguageModel,
    "electra": ReplacedTokenDetection,
    "hp_loss": HardnessByLoss,
    "hp_dist": HardnessByDistribution,
}

__all__ = ["OBJECTIVES", "JointModel"]
