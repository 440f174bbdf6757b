"""The model card: what a folder holds, where it came from, and code that runs in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import electra_ds
from electra_ds.config.schema import Config
from electra_ds.hub.kinds import OWN_FILE, export_kind
from electra_ds.hub.names import Network

SHOWN_TAGS = ("loss/", "generator/accuracy", "discriminator/auc", "eval/")


@dataclass(frozen=True)
class CardFacts:
    """What a model card says beyond the configuration; everything may be unknown."""

    run: str = "unnamed"  # the run folder's name
    step: int | None = None  # of the checkpoint
    license: str = "unknown"  # of the weights: an identifier as the Hugging Face hub knows them
    provenance: Mapping[str, Any] = field(default_factory=dict)  # of the text: the manifest's
    counts: Mapping[str, Any] = field(default_factory=dict)  # documents, sentences, tokens of the shards
    metrics: Mapping[str, float] = field(default_factory=dict)  # tag -> last value up to the step


def last_metrics(path: Path, step: int | None) -> dict[str, float]:
    """Return the last value of each tag in ``metrics.jsonl`` that is no later than ``step``.

    A missing file gives ``{}``; a last line that a kill cut short is left out.
    """
    if not path.is_file():
        return {}
    values: dict[str, float] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if not isinstance(record, dict) or (step is not None and record.get("step", 0) > step):
                continue
            values.update({tag: value for tag, value in record.items() if isinstance(value, float)})
    return values


def model_card(network: Network, config: Config, facts: CardFacts) -> str:
    """Return README.md of one exported folder, with the front matter that the Hugging Face hub reads."""
    own_file = export_kind(config) == OWN_FILE
    sections = [
        _front_matter(network, facts, own_file),
        f"# {facts.run}: {network}\n\n{_summary(network, config, facts)}",
        _usage(network, own_file),
    ]
    if own_file:
        sections.append(_CUSTOM_CODE)
    sections.append("## What differs from the training checkpoint\n\n" + _differences(network, config))
    sections += [
        "## Training data\n\n" + _table({**facts.provenance, **facts.counts}, "nothing was recorded"),
        "## Recipe\n\n" + _table(_recipe(config, facts), "nothing was recorded"),
    ]
    shown = {tag: f"{value:.4g}" for tag, value in facts.metrics.items() if tag.startswith(SHOWN_TAGS)}
    sections.append("## Last values measured in the run\n\n" + _table(shown, "no metrics were found"))
    return "\n\n".join(sections) + "\n"


def _front_matter(network: Network, facts: CardFacts, own_file: bool) -> str:
    lines = ["library_name: transformers", f"license: {facts.license}", "tags:", "- electra"]
    lines.append("- replaced-token-detection" if network == "discriminator" else "- masked-lm")
    if own_file:
        lines.append("- custom_code")
    if network == "generator":
        lines.append("pipeline_tag: fill-mask")
    return "\n".join(["---", *lines, "---"])


def _summary(network: Network, config: Config, facts: CardFacts) -> str:
    steps = "an unknown number of" if facts.step is None else f"{facts.step:,}"
    made = (
        f"pretrained for {steps} steps with electra_ds {electra_ds.__version__},"
        f" objective `{config.objective.name}`."
    )
    if network == "discriminator":
        return (
            f"ELECTRA discriminator, {made} For every token it gives a logit that is positive where it holds"
            " the token for replaced. This is the network to fine-tune."
        )
    if config.objective.name == "mlm":
        return f"Masked language model, {made} This is the network to fine-tune; it fills in `[MASK]`."
    return (
        f"ELECTRA generator, {made} It fills in `[MASK]`; for fine-tuning take the discriminator beside it."
    )


def _usage(network: Network, own_file: bool) -> str:
    flag = ", trust_remote_code=True" if own_file else ""
    loaded = _DETECT if network == "discriminator" else _FILL
    return "## How to use\n\n" + loaded.replace("FLAG", flag)


_DETECT = """```python
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer

folder = "."  # this folder
tokenizer = AutoTokenizer.from_pretrained(folderFLAG)
model = AutoModelForPreTraining.from_pretrained(folderFLAG).eval()

batch = tokenizer("the chef ate the meal", return_tensors="pt")
with torch.no_grad():
    replaced = torch.sigmoid(model(**batch).logits[0])
for token, probability in zip(tokenizer.convert_ids_to_tokens(batch["input_ids"][0]), replaced):
    print(f"{token:15} {probability:.3f}")
```"""

_FILL = """```python
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

folder = "."  # this folder
tokenizer = AutoTokenizer.from_pretrained(folderFLAG)
model = AutoModelForMaskedLM.from_pretrained(folderFLAG).eval()

batch = tokenizer(f"the chef {tokenizer.mask_token} the meal", return_tensors="pt")
masked = batch["input_ids"][0] == tokenizer.mask_token_id
with torch.no_grad():
    logits = model(**batch).logits[0, masked]
print(tokenizer.convert_ids_to_tokens(logits.topk(5).indices[0]))
```"""

_CUSTOM_CODE = """## Why `trust_remote_code`

This model adds a T5-style relative position bias to its attention scores. The ELECTRA that transformers
ships has no such bias, and loading these weights into it would silently give another model. So the folder
carries its own modelling file, `modeling_electra_rel.py`, which imports only torch and transformers, and
transformers runs code from a model folder only when `trust_remote_code=True` is given. Read the file first: it
is short. The tokenizer needs no such code; transformers asks all the same, because it reads the model's
configuration first."""


def _differences(network: Network, config: Config) -> str:
    lines = [
        "The word table was padded to a multiple of 64 rows in training; here it has the tokenizer's size.",
    ]
    sharing = config.model.embedding_sharing
    if network == "discriminator" and sharing == "gdes":
        lines.append(
            "Embeddings were shared in the gradient-disentangled way: the tables here are the sums of the"
            " generator's tables and the discriminator's differences."
        )
    if network == "generator" and config.objective.name.startswith("hp_"):
        lines.append(
            "Replacements were drawn with the help of a sampling head on this network. That head is not part"
            " of this folder: the predictions here are the masked language model's."
        )
    return "\n".join(f"- {line}" for line in lines)


def _recipe(config: Config, facts: CardFacts) -> dict[str, Any]:
    model, train, optimizer = config.model, config.train, config.optimizer
    return {
        "objective": config.objective.name,
        "steps": facts.step,
        "rows per batch": train.batch,
        "tokens per row": config.data.seq_len,
        "masked share": config.data.mask_prob,
        "layers / hidden / heads / feed-forward / embedding": " / ".join(
            str(size) for size in (model.layers, model.hidden, model.heads, model.ffn, model.embedding)
        ),
        "generator width / depth": f"{model.generator.width:g} / {model.generator.depth:g}",
        "positions": model.positions,
        "embedding sharing": model.embedding_sharing,
        "optimizer": f"AdamW, lr {optimizer.lr:g}, {optimizer.schedule}",
        "warm-up steps": optimizer.warmup_steps,
        "weight decay": optimizer.weight_decay,
        "seed": config.seed,
    }


def _table(rows: Mapping[str, Any], empty: str) -> str:
    known = {name: value for name, value in rows.items() if value not in (None, "", [], {})}
    if not known:
        return f"Not known: {empty}."
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in known.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("|", "\\|")
