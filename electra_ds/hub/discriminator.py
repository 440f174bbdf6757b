"""A discriminator from a folder that someone else may have made, without running anything that lies in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from electra_ds.config.errors import InputError
from electra_ds.hub.configs import OWN_TYPE, STOCK_TYPE, model_class
from electra_ds.hub.folder import ModelFolder, read_folder

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# Only these keys of config.json are read: others may name code to fetch, such as attention kernels.
_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_OTHERS = (
    "hidden_act",
    "layer_norm_eps",
    "pad_token_id",
    "positions",
    "relative_buckets",
    "relative_max_distance",
)
_BUFFERS = ("position_ids", "token_type_ids")  # stored by old releases of transformers


@dataclass(frozen=True)
class Discriminator:
    """A discriminator in evaluation mode on the CPU, with its tokenizer."""

    path: Path
    model: torch.nn.Module
    tokenizer: Tokenizer
    vocab_size: int
    max_length: int  # tokens

    @torch.inference_mode()
    def probabilities(self, ids: Tensor, token_types: Tensor) -> Tensor:
        """Return (B, L): the probability that each token of ``ids`` (B, L), without padding, was replaced."""
        return torch.sigmoid(self.model(input_ids=ids, token_type_ids=token_types).logits.float())


def load_discriminator(path: Path) -> Discriminator:
    """Load the folder of a discriminator: transformers' ELECTRA, or the one with relative positions.

    For the latter the class of this package is used, never the modelling file in the folder. Raises
    InputError saying what is wrong with the folder or what to pass instead.
    """
    folder = read_folder(path, "discriminator")
    cls, config = _describe(folder)
    # transformers takes the tensors as they are; no file of the folder is opened again
    loaded: Any = cls.from_pretrained(
        None,
        config=config,
        state_dict=folder.tensors,
        output_loading_info=True,
        attn_implementation="eager",
        ignore_mismatched_sizes=True,
    )
    model, report = loaded
    kinds = ("missing_keys", "mismatched_keys", "unexpected_keys")
    faults = {kind: [key if isinstance(key, str) else key[0] for key in report[kind]] for kind in kinds}
    for kind, names in faults.items():
        names = sorted(name for name in names if not name.endswith(_BUFFERS))
        if names:
            raise InputError(
                f"{path}: its weights do not fit its config.json: {len(names)} {kind.replace('_', ' ')},"
                f" such as {names[0]}; export or download it again"
            )
    sizes = config.vocab_size, config.max_position_embeddings
    return Discriminator(path, model.eval(), folder.tokenizer, *sizes)


def _describe(folder: ModelFolder) -> "tuple[type[PreTrainedModel], PretrainedConfig]":
    """Class and configuration of the model that ``config.json`` describes."""
    where, content = folder.path / "config.json", folder.config
    kind = content.get("model_type")
    if kind not in (STOCK_TYPE, OWN_TYPE):
        raise InputError(
            f"{where}: model_type is {kind!r}, expected {STOCK_TYPE!r} or {OWN_TYPE!r}; pass an ELECTRA"
        )
    cls = model_class(kind, "discriminator")
    values = {name: content[name] for name in (*_SIZES, *_OTHERS) if name in content}
    try:
        config = cls.config_class(**values)  # type: ignore[misc]
        for name in _SIZES:
            if type(getattr(config, name)) is not int or getattr(config, name) < 1:
                raise ValueError(f"{name} is {getattr(config, name)!r}")
        with torch.device("meta"):
            cls(config)
    except Exception as error:  # whatever the libraries raise for a value that makes no sense
        raise InputError(f"{where}: describes no model ({error}); restore the file") from None
    return cls, config
