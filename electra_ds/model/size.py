"""How big a configuration is and what a token costs, without taking the memory."""

import torch

from electra_ds.config.schema import Config
from electra_ds.config.shapes import EncoderShape, discriminator_shape, generator_shape
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model.build import build_model

_FORWARD_AND_BACKWARD = 3  # the backward pass of a matmul is two of its size


def count_parameters(config: Config, vocab_size: int) -> dict[str, int]:
    """Return the number of parameters of each part of the joint model by its name, and ``total``.

    Shared tables are counted once, under ``embeddings``; the word table has its training size, ``vocab_size``
    rounded up to a multiple of 64. Built on the meta device.
    """
    vocab = Vocabulary(vocab_size, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, sha256="")
    with torch.device("meta"):
        model = build_model(config, vocab)
    counts = {
        name: sum(parameter.numel() for parameter in part.parameters())
        for name, part in model.named_children()
    }
    return counts | {"total": sum(counts.values())}


def flops_per_token(config: Config, vocab_size: int) -> float:
    """Return the floating-point operations of a training step per token of the row.

    Counted are matrix products alone, two operations per multiply-add, backward as twice forward, attention
    over the full row, and vocabulary-sized layers at the masked positions alone: 0.070 / 0.668 / 2.17 GFLOP
    for small / base / large ELECTRA.
    """
    name, embedding, masked = config.objective.name, config.model.embedding, config.data.mask_prob
    shape = generator_shape(config)
    generator = _encoder(shape, embedding, config.data.seq_len)
    transform = 2.0 * shape.hidden * embedding
    scores = 2.0 * embedding * vocab_size
    total = _FORWARD_AND_BACKWARD * (generator + masked * (transform + scores))
    if name == "mlm":
        return total
    full = discriminator_shape(config)
    head = 2.0 * full.hidden * (full.hidden + 1)
    total += _FORWARD_AND_BACKWARD * (_encoder(full, embedding, config.data.seq_len) + head)
    sampling = 0.0  # of one forward pass over the sampling head's own layers
    if name == "hp_loss":
        # only the drawn word's score is trained; the whole vocabulary is scored forward
        total += masked * (_FORWARD_AND_BACKWARD * (transform + 2.0 * embedding) + scores)
        sampling = transform
    elif name == "hp_dist":
        correction = 2.0 * embedding * embedding if config.objective.hp.head == "residual" else 0.0
        sampling = transform + correction + scores
        total += masked * _FORWARD_AND_BACKWARD * sampling
    if not config.objective.sample_with_dropout and config.model.dropout > 0:
        total += generator + masked * (transform + scores + sampling)
    return total


def _encoder(shape: EncoderShape, embedding: int, length: int) -> float:
    """Return the operations of one forward pass per token."""
    matrices = 4 * shape.hidden**2 + 2 * shape.hidden * shape.ffn
    attention = 2 * length * shape.hidden  # scores, and the mix of the values
    project = embedding * shape.hidden if embedding != shape.hidden else 0
    return 2.0 * (shape.layers * (matrices + attention) + project)
