"""Configuration: the tree, recipes, overrides, derived numbers. Imports from no other room."""

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.config.schema import Config

__all__ = ["Config", "InputError", "RunFailure"]
