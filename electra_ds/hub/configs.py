"""A network of a run as Hugging Face's configuration and model classes."""

from typing import TYPE_CHECKING, Any

from electra_ds.config.schema import Config
from electra_ds.config.shapes import discriminator_shape, generator_shape
from electra_ds.data.vocabulary import Vocabulary
from electra_ds.hub.kinds import STOCK, export_kind

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from electra_ds.hub.names import Network

MODULE = "modeling_electra_rel"  # of this package, and of the folders that need a modelling file of their own
MODELLING_FILE = f"{MODULE}.py"
Shapes = dict[str, tuple[int, ...]]
STOCK_TYPE, OWN_TYPE = "electra", "electra_rel"  # model_type in config.json
ARCHITECTURES: dict["Network", str] = {"discriminator": "ForPreTraining", "generator": "ForMaskedLM"}
AUTO_CLASSES = {
    "AutoConfig": "Config",
    "AutoModel": "Model",
    "AutoModelForPreTraining": "ForPreTraining",
    "AutoModelForMaskedLM": "ForMaskedLM",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
}


def hub_config(config: Config, vocab: Vocabulary, network: "Network") -> "PretrainedConfig":
    """Return the configuration of one network of a run, of the class that will read its ``config.json``."""
    from transformers import ElectraConfig

    from electra_ds.hub.modeling_electra_rel import ElectraRelConfig
    from electra_ds.model.encoder import LAYER_NORM_EPS
    from electra_ds.model.relative import MAX_DISTANCE, NUM_BUCKETS

    model = config.model
    shape = discriminator_shape(config) if network == "discriminator" else generator_shape(config)
    values: dict[str, Any] = {
        "vocab_size": vocab.size,
        "embedding_size": model.embedding,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": model.max_positions,
        "type_vocab_size": 2,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.dropout,
        "initializer_range": model.init_std,
        "layer_norm_eps": LAYER_NORM_EPS,
        "pad_token_id": vocab.pad_id,
    }
    if export_kind(config) == STOCK:
        return ElectraConfig(**values, architectures=["Electra" + ARCHITECTURES[network]])
    return ElectraRelConfig(
        **values,
        positions=model.positions,
        relative_buckets=NUM_BUCKETS,
        relative_max_distance=MAX_DISTANCE,
        architectures=["ElectraRel" + ARCHITECTURES[network]],
        auto_map={name: f"{MODULE}.ElectraRel{suffix}" for name, suffix in AUTO_CLASSES.items()},
    )


def model_class(model_type: str, network: "Network") -> "type[PreTrainedModel]":
    """Return the class of a network with its pretraining head, for a ``model_type`` of ``config.json``."""
    if model_type == STOCK_TYPE:
        from transformers import ElectraForMaskedLM, ElectraForPreTraining

        return ElectraForPreTraining if network == "discriminator" else ElectraForMaskedLM
    from electra_ds.hub.modeling_electra_rel import ElectraRelForMaskedLM, ElectraRelForPreTraining

    return ElectraRelForPreTraining if network == "discriminator" else ElectraRelForMaskedLM


def expected_shapes(config: "PretrainedConfig", network: "Network") -> Shapes:
    """Return names and shapes of the parameters that transformers will look for in the network's folder."""
    import torch

    with torch.device("meta"):
        model = model_class(config.model_type, network)(config)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
