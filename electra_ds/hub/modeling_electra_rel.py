"""ELECTRA with T5-style relative positions, for Hugging Face transformers.

This file travels inside an exported model folder and imports nothing but torch and transformers.
The architecture is ELECTRA (Clark et al. 2020): a post-LayerNorm BERT encoder whose embeddings may
be narrower than its layers. What transformers' own ELECTRA cannot express is the bias that is added
to the attention scores of every layer: one value per head and per bucket of (key - query) distance
(Raffel et al. 2020, bidirectional buckets). One table serves all layers.

Shapes: B batch, L length, H hidden size, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce_with_logits
from torch.nn.functional import cross_entropy, gelu
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import ModelOutput, can_return_tuple

HIDDEN = -6.0e4  # added to the score of a key that must not be seen; finite in float16 too

DEFAULTS = {
    "vocab_size": 30522,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "classifier_dropout": None,
    "positions": "both",
    "relative_buckets": 32,
    "relative_max_distance": 128,
}


class ElectraRelConfig(PretrainedConfig):
    """Sizes of the encoder; ``positions`` is ``"relative"`` or ``"both"`` (relative and a position table)."""

    model_type = "electra_rel"

    def __init__(self, **kwargs):
        for name, default in DEFAULTS.items():
            setattr(self, name, kwargs.pop(name, default))
        if self.positions not in ("relative", "both"):
            raise ValueError(f"positions must be 'relative' or 'both', not {self.positions!r}")
        super().__init__(**{"pad_token_id": 0, "tie_word_embeddings": True, **kwargs})


def relative_position_buckets(length, num_buckets, max_distance, device=None):
    """Bucket of every (query, key) pair, shape (L, L), int64.

    Half of the buckets serve keys to the right of the query. Of each half, the first half holds one
    distance each; the rest grow logarithmically up to ``max_distance`` and share the last bucket beyond.
    """
    index = torch.arange(length, device=device)
    distance = index[None, :] - index[:, None]
    half = num_buckets // 2
    exact = half // 2
    size = distance.abs()
    growth = torch.log(size.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (growth * (half - exact)).long()).clamp(max=half - 1)
    return torch.where(size < exact, size, far) + half * (distance > 0)


class ElectraRelEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        if config.positions == "both":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.positions = config.positions

    def forward(self, input_ids, token_type_ids, position_ids, inputs_embeds):
        x = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if token_type_ids is None:
            token_type_ids = torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        x = x + self.token_type_embeddings(token_type_ids)
        if self.positions == "both":
            if position_ids is None:
                position_ids = torch.arange(x.shape[1], device=x.device)[None, :]
            x = x + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(x))


class ElectraRelSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, x, bias, output_attentions):
        batch, length, hidden = x.shape  # query, key and value are (B, heads, L, H / heads)
        shape = (batch, length, self.heads, hidden // self.heads)
        query, key, value = (f(x).view(shape).transpose(1, 2) for f in (self.query, self.key, self.value))
        bias = bias.to(query.dtype)  # which autocast may have lowered
        dropout = self.dropout if self.training else 0.0
        weights = None
        if self.config._attn_implementation == "sdpa" and not output_attentions:
            context = sdpa(query, key, value, attn_mask=bias, dropout_p=dropout)
        else:
            scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1]) + bias
            weights = scores.softmax(dim=-1)
            context = nn.functional.dropout(weights, p=dropout) @ value
        return context.transpose(1, 2).reshape(batch, length, hidden), weights


class ElectraRelResidual(nn.Module):
    """Linear, dropout, addition of the residual, LayerNorm."""

    def __init__(self, config, size_in):
        super().__init__()
        self.dense = nn.Linear(size_in, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, residual):
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class ElectraRelLayer(nn.Module):
    # Module dictionaries give the parameters the names that they have in transformers' own ELECTRA.
    def __init__(self, config):
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        attention = {"self": ElectraRelSelfAttention(config), "output": ElectraRelResidual(config, hidden)}
        self.attention = nn.ModuleDict(attention)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(hidden, inner)})
        self.output = ElectraRelResidual(config, inner)

    def forward(self, x, bias, output_attentions):
        context, weights = self.attention["self"](x, bias, output_attentions)
        x = self.attention["output"](context, x)
        return self.output(gelu(self.intermediate["dense"](x)), x), weights


class ElectraRelEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.relative_attention_bias = nn.Embedding(config.relative_buckets, config.num_attention_heads)
        self.layer = nn.ModuleList([ElectraRelLayer(config) for _ in range(config.num_hidden_layers)])
        self.gradient_checkpointing = False  # transformers sets it

    def attention_bias(self, x, attention_mask):
        """What is added to the scores: (1 or B, heads, L, L); keys that must not be seen get ``HIDDEN``."""
        buckets, reach = self.config.relative_buckets, self.config.relative_max_distance
        index = relative_position_buckets(x.shape[1], buckets, reach, x.device)
        bias = self.relative_attention_bias(index).permute(2, 0, 1)[None].to(x.dtype)
        if attention_mask is None:
            return bias
        if attention_mask.dim() == 2:  # (B, L): which keys exist; (B, L, L): which of them a query sees
            attention_mask = attention_mask[:, None, :]
        return bias.masked_fill(~attention_mask[:, None].bool(), HIDDEN)

    def forward(self, x, attention_mask, output_attentions, output_hidden_states):
        bias = self.attention_bias(x, attention_mask)
        states, attentions = [x], []
        for layer in self.layer:
            if self.gradient_checkpointing and self.training:
                x, weights = checkpoint(layer, x, bias, output_attentions, use_reentrant=False)
            else:
                x, weights = layer(x, bias, output_attentions)
            states.append(x)
            attentions.append(weights)
        weights = tuple(attentions) if output_attentions else None
        return BaseModelOutput(x, tuple(states) if output_hidden_states else None, weights)


class ElectraRelPreTrainedModel(PreTrainedModel):
    config_class = ElectraRelConfig
    base_model_prefix = "electra"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    accepts_loss_kwargs = False  # losses are means, which Trainer is to divide when it accumulates gradients
    _no_split_modules = ["ElectraRelLayer"]  # noqa: RUF012

    def _init_weights(self, module):
        if isinstance(module, ElectraRelEncoder):
            nn.init.zeros_(module.relative_attention_bias.weight)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)


class ElectraRelModel(ElectraRelPreTrainedModel):
    """The encoder: ids (B, L) to hidden states (B, L, H)."""

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = ElectraRelEmbeddings(config)
        if config.embedding_size != config.hidden_size:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = ElectraRelEncoder(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value):
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        inputs_embeds=None,
        **kwargs,
    ):
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        x = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        if self.config.embedding_size != self.config.hidden_size:
            x = self.embeddings_project(x)
        asked = {}
        for name in ("output_attentions", "output_hidden_states"):
            asked[name] = getattr(self.config, name) if kwargs.get(name) is None else kwargs[name]
        return self.encoder(x, attention_mask, **asked)


def head_dropout(config):
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


class ElectraRelWithHead(ElectraRelPreTrainedModel):
    """Encoder plus head. A subclass builds the head, maps hidden states to logits and knows its loss."""

    output_class: type[ModelOutput] = TokenClassifierOutput
    build_head: Callable
    logits: Callable

    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.electra = ElectraRelModel(config)
        self.build_head(config)
        self.post_init()

    # The arguments stand here by name because Trainer drops the columns that it does not find in them.
    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        position_ids=None,
        inputs_embeds=None,
        labels=None,
        **kwargs,
    ):
        encoded = self.electra(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.logits(encoded.last_hidden_state)
        loss = None if labels is None else self.loss(logits, labels, attention_mask)
        return self.output_class(
            loss=loss, logits=logits, hidden_states=encoded.hidden_states, attentions=encoded.attentions
        )

    def loss(self, logits, labels, attention_mask):
        return cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


class ElectraRelForPreTraining(ElectraRelWithHead):
    """The discriminator: logits (B, L), positive where the token looks replaced."""

    def build_head(self, config):
        dense = nn.Linear(config.hidden_size, config.hidden_size)
        output = nn.Linear(config.hidden_size, 1)
        self.discriminator_predictions = nn.ModuleDict({"dense": dense, "dense_prediction": output})

    def logits(self, x):
        head = self.discriminator_predictions
        return head["dense_prediction"](gelu(head["dense"](x))).squeeze(-1)

    def loss(self, logits, labels, attention_mask):
        real = torch.ones_like(logits) if attention_mask is None else attention_mask.to(logits.dtype)
        return bce_with_logits(logits, labels.to(logits.dtype), weight=real, reduction="sum") / real.sum()


class ElectraRelForMaskedLM(ElectraRelWithHead):
    """The generator: logits (B, L, V) through the word table; labels of -100 are not counted."""

    output_class = MaskedLMOutput
    # transformers 5 reads target and source, 4 only the targets
    _tied_weights_keys = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}  # noqa: RUF012

    def build_head(self, config):
        dense = nn.Linear(config.hidden_size, config.embedding_size)
        norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.generator_predictions = nn.ModuleDict({"dense": dense, "LayerNorm": norm})
        self.generator_lm_head = nn.Linear(config.embedding_size, config.vocab_size)

    def get_output_embeddings(self):
        return self.generator_lm_head

    def set_output_embeddings(self, value):
        self.generator_lm_head = value

    def logits(self, x):
        head = self.generator_predictions
        return self.generator_lm_head(head["LayerNorm"](gelu(head["dense"](x))))


class ElectraRelForSequenceClassification(ElectraRelWithHead):
    """First token -> dropout -> dense -> gelu -> dropout -> labels, as transformers' ELECTRA does.

    Logits (B, labels); one label, or ``problem_type`` "regression", is trained by squared error.
    """

    output_class = SequenceClassifierOutput

    def build_head(self, config):
        dense = nn.Linear(config.hidden_size, config.hidden_size)
        output = nn.Linear(config.hidden_size, config.num_labels)
        self.classifier = nn.ModuleDict({"dense": dense, "out_proj": output})
        self.dropout = nn.Dropout(head_dropout(config))

    def logits(self, x):
        x = gelu(self.classifier["dense"](self.dropout(x[:, 0])))
        return self.classifier["out_proj"](self.dropout(x))

    def loss(self, logits, labels, attention_mask):
        if self.config.problem_type == "multi_label_classification":
            return bce_with_logits(logits, labels.to(logits.dtype))
        if self.num_labels == 1 or self.config.problem_type == "regression":
            return nn.functional.mse_loss(logits.reshape(-1), labels.to(logits.dtype).reshape(-1))
        return super().loss(logits, labels, attention_mask)


class ElectraRelForTokenClassification(ElectraRelWithHead):
    """Logits (B, L, labels)."""

    def build_head(self, config):
        self.dropout = nn.Dropout(head_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def logits(self, x):
        return self.classifier(self.dropout(x))


class ElectraRelForQuestionAnswering(ElectraRelWithHead):
    """Start and end logits (B, L); the loss is the mean over the boundaries that lie inside the row."""

    def build_head(self, config):
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def logits(self, x):
        return self.qa_outputs(x)

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        start_positions=None,
        end_positions=None,
        **kwargs,
    ):
        output = super().forward(input_ids, attention_mask, token_type_ids, return_dict=True, **kwargs)
        start, end = output.logits.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            beyond = start.shape[1]  # where the answers that were cut off lie
            target = torch.cat([start_positions, end_positions]).reshape(-1).clamp(0, beyond)
            loss = cross_entropy(torch.cat([start, end]), target, ignore_index=beyond)
        return QuestionAnsweringModelOutput(loss, start, end, output.hidden_states, output.attentions)
