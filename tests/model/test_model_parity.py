"""Encoder and both heads against Hugging Face's ELECTRA with the same weights."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining
from transformers.initialization import no_init_weights

from electra_ds.config.schema import Config, DataConfig, GeneratorConfig, ModelConfig
from electra_ds.config.shapes import EncoderShape, discriminator_shape, generator_shape
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.model.build import build_model
from electra_ds.model.encoder import attend
from electra_ds.model.slots import Slots

VOCAB = Vocabulary(size=1000, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, sha256="")
MODELS = {
    "small": ModelConfig(),
    "base": ModelConfig(
        hidden=768, heads=12, ffn=3072, embedding=768, generator=GeneratorConfig(width=1 / 3)
    ),
    "projected": ModelConfig(layers=3, hidden=48, heads=3, ffn=80, embedding=20, max_positions=24),
}
LAYER_NAMES = {
    "attention_norm": "attention.output.LayerNorm",
    "attention.output": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}


def stock_names(state: dict[str, torch.Tensor], network: str) -> dict[str, torch.Tensor]:
    """Return our weights of one network and the embeddings under Hugging Face's names."""
    out: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        part, _, rest = name.partition(".")
        if part == "embeddings":
            owner, _, kind = rest.partition(".")
            stock = {
                "word": "word_embeddings",
                "position": "position_embeddings",
                "token_type": "token_type_embeddings",
            }
            if owner == "word":
                value = value[: VOCAB.size]
            out[f"electra.embeddings.{stock.get(owner, 'LayerNorm')}.{kind}"] = value
        elif part == network and rest.startswith("project"):
            out[f"electra.embeddings_{rest}"] = value
        elif part == network:
            _, layer, inner = rest.split(".", 2)
            module, _, kind = inner.rpartition(".")
            prefix = f"electra.encoder.layer.{layer}"
            if module == "attention.qkv":
                for key, piece in zip(("query", "key", "value"), value.chunk(3), strict=True):
                    out[f"{prefix}.attention.self.{key}.{kind}"] = piece
            else:
                out[f"{prefix}.{LAYER_NAMES[module]}.{kind}"] = value
    return out


def stock_config(model: ModelConfig, shape: EncoderShape) -> ElectraConfig:
    return ElectraConfig(
        vocab_size=VOCAB.size,
        embedding_size=model.embedding,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.ffn,
        max_position_embeddings=model.max_positions,
        attn_implementation="eager",
    )


def load(kind, config, weights):
    with no_init_weights():
        stock = kind(config)
    stock.load_state_dict(weights, strict=True)
    return stock.eval()


def randomized(model):
    """Give the biases and norms values too, or a forgotten one would not be seen."""
    rng = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=rng)
    return model.eval()


@pytest.mark.parametrize("size", MODELS)
@torch.no_grad()
def test_networks_equal_the_stock_ones(size, batch):
    config = replace(Config(), model=MODELS[size], data=DataConfig(seq_len=20))
    ours = randomized(build_model(config, VOCAB))
    state = ours.state_dict()
    rows = batch(seed=1, rows=2, length=20, slots=3, vocab=VOCAB.size)
    rows.token_type_ids[:, 12:] = 1
    rows.input_ids[1, 15:] = VOCAB.pad_id
    rows.segments[1, 15:] = 0
    rows.needs_mask = True
    rows.masked_positions.clamp_(max=14)
    inputs = {"attention_mask": rows.segments, "token_type_ids": rows.token_type_ids}
    real = rows.segments > 0

    weights = stock_names(state, "discriminator")
    weights["discriminator_predictions.dense.weight"] = state["rtd_head.dense.weight"]
    weights["discriminator_predictions.dense.bias"] = state["rtd_head.dense.bias"]
    weights["discriminator_predictions.dense_prediction.weight"] = state["rtd_head.output.weight"]
    weights["discriminator_predictions.dense_prediction.bias"] = state["rtd_head.output.bias"]
    stock = load(ElectraForPreTraining, stock_config(config.model, discriminator_shape(config)), weights)
    expected = stock(rows.input_ids, **inputs)
    slots = Slots.of(rows)
    found = ours.detect(rows, slots, slots.targets).logits
    torch.testing.assert_close(found[real], expected.logits[real], rtol=0, atol=1e-5)

    weights = stock_names(state, "generator")
    for kind in ("weight", "bias"):
        weights[f"generator_predictions.dense.{kind}"] = state[f"mlm_head.dense.{kind}"]
        weights[f"generator_predictions.LayerNorm.{kind}"] = state[f"mlm_head.norm.{kind}"]
    weights["generator_lm_head.weight"] = state["embeddings.word.weight"][: VOCAB.size]
    weights["generator_lm_head.bias"] = state["mlm_head.bias"][: VOCAB.size]
    stock = load(ElectraForMaskedLM, stock_config(config.model, generator_shape(config)), weights)
    masked = rows.input_ids.scatter(1, rows.masked_positions, VOCAB.mask_id)
    everywhere = stock(masked, **inputs).logits  # the full head, (B, L, V)
    at_slots = everywhere.gather(1, rows.masked_positions[..., None].expand(-1, -1, VOCAB.size)).flatten(0, 1)
    found = ours.generate(rows, slots).logits[:, : VOCAB.size]
    assert at_slots.std() > 0.1
    torch.testing.assert_close(found, at_slots, rtol=0, atol=1e-5)


def test_explicit_attention_equals_the_fused_kernel():
    rng = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 9, 8, generator=rng).unbind(0)
    bias = torch.randn(1, 4, 9, 9, generator=rng)
    for added in (None, bias):
        expected = F.scaled_dot_product_attention(query, key, value, added)
        torch.testing.assert_close(attend(query, key, value, added, 0.0), expected, rtol=0, atol=1e-6)
