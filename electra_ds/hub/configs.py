"""Sizes of a network: this project's configuration on one side, Hugging Face's ``config.json`` on the other."""

from collections.abc import Mapping
from typing import Any

from electra_ds.config.schema import Config, ModelConfig
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.hub.kinds import STOCK, export_kind
from electra_ds.hub.names import Network

MODELLING_FILE = "modeling_electra_rel.py"
OWN_TYPE = "electra_rel"  # config.json's model_type of a folder with its own modelling file
ARCHITECTURES: dict[Network, str] = {"discriminator": "ForPreTraining", "generator": "ForMaskedLM"}
AUTO_CLASSES = {
    "AutoModel": "Model",
    "AutoModelForPreTraining": "ForPreTraining",
    "AutoModelForMaskedLM": "ForMaskedLM",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
}
NEEDED_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)


def write_config(config: Config, vocab: Vocabulary, network: Network, folder: Path) -> None:
    """Write ``config.json`` for one network of a run, through the configuration class that will read it."""
    from transformers import ElectraConfig, PretrainedConfig

    from electra_ds.hub.modeling_electra_rel import ElectraRelConfig

    sizes = network_sizes(config, network)
    values: dict[str, Any] = {
        "vocab_size": vocab.size,
        "embedding_size": sizes.embedding,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.ffn,
        "max_position_embeddings": sizes.max_positions,
        "type_vocab_size": 2,
        "hidden_dropout_prob": sizes.dropout,
        "attention_probs_dropout_prob": sizes.dropout,
        "initializer_range": sizes.init_std,
        "layer_norm_eps": LAYER_NORM_EPS,
        "pad_token_id": vocab.pad_id,
    }
    written: PretrainedConfig
    if export_kind(config) == STOCK:
        written = ElectraConfig(**values, architectures=["Electra" + ARCHITECTURES[network]])
    else:
        auto_map = {name: f"{MODULE}.ElectraRel{suffix}" for name, suffix in AUTO_CLASSES.items()}
        written = ElectraRelConfig(
            **values,
            positions=config.model.positions,
            relative_buckets=RELATIVE_BUCKETS,
            relative_max_distance=RELATIVE_MAX_DISTANCE,
            architectures=["ElectraRel" + ARCHITECTURES[network]],
            auto_map=auto_map,
        )
    written.save_pretrained(folder)


def read_config(content: Mapping[str, Any], where: Path) -> tuple[ModelConfig, int]:
    """Return the sizes in a ``config.json`` and its vocabulary size, for a network with dropout off.

    Raises InputError where it is no ELECTRA, lacks a size, or asks for something this encoder has not.
    """
    kind = content.get("model_type")
    if kind not in ("electra", OWN_TYPE):
        raise InputError(f"{where}: model_type is {kind!r}; pass a folder whose model is an ELECTRA")
    for name in NEEDED_SIZES:
        value = content.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{where}: {name} is {value!r}, expected a positive integer; restore the file")
    required = {
        "hidden_act": "gelu",
        "type_vocab_size": 2,
        "layer_norm_eps": LAYER_NORM_EPS,
        "relative_buckets": RELATIVE_BUCKETS,
        "relative_max_distance": RELATIVE_MAX_DISTANCE,
    }
    for name, value in required.items():
        if content.get(name, value) != value:
            raise InputError(
                f"{where}: {name} is {content[name]!r}, but only {value!r} is supported; use transformers for this model"
            )
    positions = "absolute" if kind == "electra" else content.get("positions")
    if positions not in ("absolute", "relative", "both"):
        raise InputError(f"{where}: positions is {positions!r}, expected 'relative' or 'both'; restore the file")
    if content["hidden_size"] % content["num_attention_heads"]:
        raise InputError(
            f"{where}: hidden_size {content['hidden_size']} is no multiple of num_attention_heads"
            f" {content['num_attention_heads']}; restore the file"
        )
    sizes = ModelConfig(
        layers=content["num_hidden_layers"],
        hidden=content["hidden_size"],
        heads=content["num_attention_heads"],
        ffn=content["intermediate_size"],
        embedding=content["embedding_size"],
        max_positions=content["max_position_embeddings"],
        dropout=0.0,
        positions=positions,
    )
    return sizes, content["vocab_size"]
