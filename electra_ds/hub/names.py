"""Parameter names: from this project's to those of transformers' ELECTRA.

The way is exact: tensors are split and cut, never computed with. The one exception is gradient-disentangled
sharing, whose discriminator looks up the sum of a shared and an own table: the sum is what leaves.

The relative table, which transformers' ELECTRA does not have, keeps its place in the encoder (``RELATIVE``).
"""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

Network = Literal["discriminator", "generator"]
Tensors = dict[str, Tensor]

EMBEDDINGS = {
    "word.weight": "word_embeddings.weight",
    "position.weight": "position_embeddings.weight",
    "token_type.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
LAYER = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
HEADS: dict[Network, dict[str, str]] = {
    "discriminator": {
        "rtd_head.dense": "discriminator_predictions.dense",
        "rtd_head.output": "discriminator_predictions.dense_prediction",
    },
    "generator": {
        "mlm_head.dense": "generator_predictions.dense",
        "mlm_head.norm": "generator_predictions.LayerNorm",
    },
}
TABLE = "electra.embeddings.word_embeddings.weight"
RELATIVE = "electra.encoder.relative_attention_bias.weight"


class LayoutError(ValueError):
    """The tensors at hand are not those of the network they should be: the message lists them."""


def networks_in(state: Tensors) -> list[Network]:
    """Return the networks that a model's state holds, the discriminator first."""
    names: tuple[Network, ...] = ("discriminator", "generator")
    return [name for name in names if any(key.startswith(f"{name}.layers.") for key in state)]


def to_hugging_face(state: Tensors, network: Network, vocab_size: int) -> Tensors:
    """Return one network of a joint model under Hugging Face's names.

    ``state``: the joint model's fp32 parameters, vocabulary-sized tensors padded or not. Tensors that come
    back are copies, contiguous, fp32, and share no storage; vocabulary-sized ones have ``vocab_size`` rows at
    most. Raises LayoutError where a tensor is missing or the network has one that has no place outside.
    """
    source = _Source({**_embeddings_of(state, network), **_body_of(state, network)})
    result: Tensors = {}
    for ours, theirs in EMBEDDINGS.items():
        if ours != "position.weight" or f"embeddings.{ours}" in source:
            result[f"electra.embeddings.{theirs}"] = source.take(f"embeddings.{ours}")
    layers = _layers(source, f"{network}.layers.")
    for ours, theirs in _linear_pairs(source, network, layers):
        for kind in ("weight", "bias"):
            result[f"{theirs}.{kind}"] = source.take(f"{ours}.{kind}")
    for layer in layers:
        for kind in ("weight", "bias"):
            fused = source.take(f"{network}.layers.{layer}.attention.qkv.{kind}")
            for part, tensor in zip(("query", "key", "value"), fused.chunk(3), strict=True):
                result[f"electra.encoder.layer.{layer}.attention.self.{part}.{kind}"] = tensor
    if f"{network}.relative.weight" in source:
        result[RELATIVE] = source.take(f"{network}.relative.weight")
    if network == "generator":
        result["generator_lm_head.bias"] = source.take("mlm_head.bias")
    source.finish()
    for name in result.keys() & {TABLE, "generator_lm_head.bias"}:
        result[name] = result[name][:vocab_size]
    return {name: _own(tensor) for name, tensor in result.items()}


class _Source:
    """A dictionary of tensors that remembers what was taken and what was looked for in vain."""

    def __init__(self, tensors: Tensors) -> None:
        self.left = dict(tensors)
        self.missing: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.left

    def __iter__(self) -> Iterator[str]:
        return iter(self.left)

    def take(self, name: str) -> Tensor:
        if name not in self.left:
            self.missing.append(name)
            return torch.empty(3)  # finish() raises: every missing name is to be known first
        return self.left.pop(name)

    def finish(self) -> None:
        """Raise LayoutError unless everything was found and everything was taken."""
        faults = [("missing", self.missing), ("unexplained", sorted(self.left))]
        parts = [f"{what}: {_listed(names)}" for what, names in faults if names]
        if parts:
            raise LayoutError("; ".join(parts))


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _linear_pairs(source: _Source, network: Network, layers: list[int]) -> list[tuple[str, str]]:
    """Name pairs (ours, theirs) of everything that is a weight and a bias on both sides."""
    pairs = list(HEADS[network].items())
    if f"{network}.project.weight" in source:
        pairs.append((f"{network}.project", "electra.embeddings_project"))
    for layer in layers:
        for ours, theirs in LAYER.items():
            pairs.append((f"{network}.layers.{layer}.{ours}", f"electra.encoder.layer.{layer}.{theirs}"))
    return pairs


def _layers(source: _Source, prefix: str) -> list[int]:
    found = {name[len(prefix) :].split(".")[0] for name in source if name.startswith(prefix)}
    return sorted(int(index) for index in found if index.isdecimal())


def _embeddings_of(state: Tensors, network: Network) -> Tensors:
    """The tables that a network looks up, under ``embeddings.*``, whatever the sharing."""
    shared = {name: tensor for name, tensor in state.items() if name.startswith("embeddings.")}
    if network == "generator":
        return shared
    prefix = "discriminator_embeddings."
    own = {name[len(prefix) :]: tensor for name, tensor in state.items() if name.startswith(prefix)}
    deltas = {name: own.pop(name) for name in ("word_delta", "position_delta") if name in own}
    if deltas:  # gradient-disentangled: everything else is shared
        for name, delta in deltas.items():
            table = f"embeddings.{name.removesuffix('_delta')}.weight"
            shared[table] = shared[table].float() + delta.float()
        return {**shared, **{f"embeddings.{name}": tensor for name, tensor in own.items()}}
    return {f"embeddings.{name}": tensor for name, tensor in own.items()} or shared


def _body_of(state: Tensors, network: Network) -> Tensors:
    """Encoder and head of a network; the other one and the sampling head are left out."""
    head = "rtd_head." if network == "discriminator" else "mlm_head."
    return {name: tensor for name, tensor in state.items() if name.startswith((f"{network}.", head))}


def _own(tensor: Tensor) -> Tensor:
    """A contiguous fp32 copy on the CPU with storage of its own."""
    return tensor.detach().to(device="cpu", dtype=torch.float32).contiguous().clone()
