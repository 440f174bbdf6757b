"""Sizes of the two networks."""

from dataclasses import dataclass

from electra_ds.config.schema import Config


@dataclass(frozen=True)
class EncoderShape:
    """Layers, width, attention heads and feed-forward width of one encoder."""

    layers: int
    hidden: int
    heads: int
    ffn: int


def discriminator_shape(config: Config) -> EncoderShape:
    """Return the full size: the discriminator's."""
    model = config.model
    return EncoderShape(model.layers, model.hidden, model.heads, model.ffn)


def generator_shape(config: Config) -> EncoderShape:
    """Return the generator's size: the full size times the multipliers, rounded, never below 1.

    0.3333 of 768 is 256. Under the objective ``mlm`` the generator is the only network and has the full size.
    """
    full = discriminator_shape(config)
    if config.objective.name == "mlm":
        return full
    width, depth = config.model.generator.width, config.model.generator.depth
    return EncoderShape(
        layers=max(1, round(full.layers * depth)),
        hidden=max(1, round(full.hidden * width)),
        heads=max(1, round(full.heads * width)),
        ffn=max(1, round(full.ffn * width)),
    )
