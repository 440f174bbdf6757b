"""What a configuration is exported as. Needs no torch, so that a dry run can say it at once."""

from electra_ds.config.schema import Config

STOCK = "stock ELECTRA"
OWN_FILE = "own modelling file"


def export_kind(config: Config) -> str:
    """Return ``"stock ELECTRA"``, or ``"own modelling file"`` where transformers has no such model.

    Relative positions are the reason: transformers' ELECTRA has a position table and nothing else.
    """
    return STOCK if config.model.positions == "absolute" else OWN_FILE
