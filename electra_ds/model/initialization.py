"""Initial weights, as in the reference."""

import math

import torch
from torch import Tensor, nn

from electra_ds.config.schema import ModelConfig
from electra_ds.model.embeddings import EmbeddingDeltas
from electra_ds.model.heads import SamplingHead, VocabularyHead
from electra_ds.model.relative import RelativeBias, local_bias

CUT = 2.0  # standard deviations

_GLOROT = ("project", "rtd_head.output")  # the layers that the reference leaves to its library's default


@torch.no_grad()
def truncated_normal(values: Tensor, std: float) -> None:
    """Fill in place from a normal distribution cut at two standard deviations, by its inverse CDF.

    torch's own ``trunc_normal_`` takes ten times as long, which is minutes for a large model.
    """
    edge = math.erf(CUT / math.sqrt(2))
    values.uniform_(-edge, edge).erfinv_().mul_(std * math.sqrt(2)).clamp_(-CUT * std, CUT * std)


@torch.no_grad()
def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Initialise every parameter in place.

    Glorot for the embedding projection and the last layer of the discriminator's head; truncated normal for
    all other matrices; zero for biases, deltas and a correction's last layer.
    """
    for name, module in model.named_modules():
        if isinstance(module, RelativeBias):
            module.weight.zero_()
            if config.relative_init == "local":
                module.weight.copy_(local_bias(module.weight.shape[1]))
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, EmbeddingDeltas):
            for delta in module.parameters():
                delta.zero_()
        elif isinstance(getattr(module, "weight", None), nn.Parameter):
            if name.endswith(_GLOROT):
                nn.init.xavier_uniform_(module.weight)
            else:
                truncated_normal(module.weight, config.init_std)
        if isinstance(module, nn.Linear | VocabularyHead):
            module.bias.zero_()
    for module in model.modules():
        if isinstance(module, SamplingHead) and module.output is not None:
            module.output.weight.zero_()
        if isinstance(module, SamplingHead) and module.kind == "copy":
            module.load_state_dict(model.get_submodule("mlm_head").state_dict())
