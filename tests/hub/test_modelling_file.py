"""The modelling file that travels with relative positions, as a user of transformers meets it."""

import ast
import json
from pathlib import Path

import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from electra_ds.hub import modeling_electra_rel
from electra_ds.hub.modeling_electra_rel import relative_position_buckets
from electra_ds.model.relative import MAX_DISTANCE, NUM_BUCKETS, relative_buckets

FINE_TUNING = {
    "sequence": (AutoModelForSequenceClassification, "classifier", {"num_labels": 3}),
    "token": (AutoModelForTokenClassification, "classifier", {"num_labels": 5}),
    "question": (AutoModelForQuestionAnswering, "qa_outputs", {}),
}


@pytest.fixture(params=["relative", "both"])
def source(request, exported):
    return exported(positions=request.param)


def sentences(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    batch = tokenizer(["the chef ate the meal.", "a", "cooked"], ["he ate", "b c d", ""], padding=True)
    return {name: torch.tensor(values) for name, values in batch.items()}


def test_the_file_imports_only_torch_and_transformers():
    tree = ast.parse(Path(modeling_electra_rel.__file__).read_text(encoding="utf-8"))
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            roots.add(node.module.split(".")[0])
    assert roots == {"math", "collections", "torch", "transformers"}


def test_buckets_are_those_of_training():
    length = 2 * MAX_DISTANCE + 50
    place = torch.arange(length)
    ours = relative_buckets(place[None, :] - place[:, None])
    assert torch.equal(relative_position_buckets(length, NUM_BUCKETS, MAX_DISTANCE), ours)


def test_without_trust_it_is_refused_and_not_loaded_as_something_else(source):
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModel.from_pretrained(source.discriminator, trust_remote_code=False)


@torch.no_grad()
def test_every_auto_class_finds_its_class_and_the_encoder_is_the_same(source):
    folder = source.discriminator
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert type(config).__name__ == "ElectraRelConfig"
    batch = sentences(folder)
    encoder = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    states = encoder(**batch).last_hidden_state
    assert states.std() > 0.1
    for name in config.auto_map:
        if name in ("AutoConfig", "AutoModel"):
            continue
        model = getattr(transformers, name).from_pretrained(folder, trust_remote_code=True).eval()
        assert type(model).__module__.startswith("transformers_modules"), "the folder's own file runs"
        torch.testing.assert_close(model.electra(**batch).last_hidden_state, states, atol=0, rtol=0)


@pytest.mark.parametrize("auto", [AutoModelForPreTraining, AutoModelForMaskedLM])
@torch.no_grad()
def test_saved_again_it_loads_again(source, tmp_path, auto):
    folder = source.discriminator if auto is AutoModelForPreTraining else source.generator
    first = auto.from_pretrained(folder, trust_remote_code=True).eval()
    first.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "modeling_electra_rel.py").is_file()
    second, report = auto.from_pretrained(
        tmp_path / "again", trust_remote_code=True, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    before, after = first.state_dict(), second.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    batch = sentences(folder)
    torch.testing.assert_close(second.eval()(**batch).logits, first(**batch).logits, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_eager_and_sdpa_agree(source):
    folder = source.discriminator
    batch = sentences(folder)
    logits = {}
    for kind in ("eager", "sdpa"):
        model = AutoModelForPreTraining.from_pretrained(
            folder, trust_remote_code=True, attn_implementation=kind
        ).eval()
        assert model.config._attn_implementation == kind
        logits[kind] = model(**batch).logits
    torch.testing.assert_close(logits["eager"], logits["sdpa"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["eager", "sdpa"])
@torch.no_grad()
def test_bf16_autocast_and_rows_that_are_all_padding(source, kind):
    model = AutoModelForPreTraining.from_pretrained(
        source.discriminator, trust_remote_code=True, attn_implementation=kind
    ).eval()
    batch = sentences(source.discriminator)
    exact = model(**batch).logits
    batch["attention_mask"][1] = 0
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(**batch).logits
    assert rough.isfinite().all()
    assert (rough - exact)[0].abs().max() < 0.1 * exact.abs().max()


@torch.no_grad()
def test_a_mask_of_three_dimensions_packs_examples(source):
    model = AutoModelForPreTraining.from_pretrained(source.discriminator, trust_remote_code=True).eval()
    ids = torch.arange(5, 25)[None]
    segments = torch.tensor([[1] * 8 + [2] * 12])
    packed = model(
        input_ids=ids,
        attention_mask=segments[:, :, None] == segments[:, None, :],
        position_ids=torch.cat([torch.arange(8), torch.arange(12)])[None],
    ).logits
    alone = torch.cat([model(input_ids=ids[:, :8]).logits, model(input_ids=ids[:, 8:]).logits], dim=1)
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_states_and_attentions_on_demand(source):
    model = AutoModel.from_pretrained(
        source.discriminator, trust_remote_code=True, attn_implementation="eager"
    ).eval()
    batch = sentences(source.discriminator)
    output = model(**batch, output_attentions=True, output_hidden_states=True)
    rows, length = batch["input_ids"].shape
    assert [tuple(state.shape) for state in output.hidden_states] == [(rows, length, 32)] * 3
    assert [tuple(weights.shape) for weights in output.attentions] == [(rows, 4, length, length)] * 2
    torch.testing.assert_close(output.attentions[0].sum(-1), torch.ones(rows, 4, length))
    assert torch.equal(model(**batch, return_dict=False)[0], output.last_hidden_state)


def labels_for(kind: str, batch) -> dict[str, torch.Tensor]:
    rows, length = batch["input_ids"].shape
    if kind == "sequence":
        return {"labels": torch.arange(rows) % 3}
    if kind == "token":
        return {"labels": torch.where(batch["attention_mask"] > 0, batch["input_ids"] % 5, -100)}
    beyond = length + 7  # an answer that truncation cut off
    return {"start_positions": torch.tensor([1, 2, beyond]), "end_positions": torch.tensor([3, 2, beyond])}


@pytest.mark.parametrize("kind", FINE_TUNING)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_fine_tuning(source, kind, checkpointing, tmp_path):
    auto, head, settings = FINE_TUNING[kind]
    folder = source.discriminator
    torch.manual_seed(0)
    model, report = auto.from_pretrained(
        folder,
        trust_remote_code=True,
        output_loading_info=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **settings,
    )
    assert all(name.startswith(head) for name in report["missing_keys"])
    assert report["missing_keys"], "a new head starts at random"
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    batch = sentences(folder)
    batch |= labels_for(kind, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    model.train()
    for _ in range(30):
        loss = model(**batch).loss
        loss.backward()
        assert model.electra.encoder.relative_attention_bias.weight.grad.abs().sum() > 0
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert min(losses) < 0.5 * losses[0]

    model.eval().save_pretrained(tmp_path / "tuned")
    again = auto.from_pretrained(tmp_path / "tuned", trust_remote_code=True).eval()
    with torch.no_grad():
        assert again(**batch).loss.item() == pytest.approx(model(**batch).loss.item(), abs=1e-5)


@pytest.mark.parametrize("network", ["discriminator", "generator"])
def test_pretraining_losses(source, network):
    """Real tokens alone count for the discriminator, labels other than -100 for the generator."""
    folder = source.folder / network
    auto = AutoModelForPreTraining if network == "discriminator" else AutoModelForMaskedLM
    model = auto.from_pretrained(folder, trust_remote_code=True).eval()
    batch = sentences(folder)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        if network == "discriminator":
            labels = batch["input_ids"] % 2
            output = model(**batch, labels=labels)
            wanted = torch.nn.functional.binary_cross_entropy_with_logits(
                output.logits[real], labels[real].float()
            )
        else:
            labels = torch.where(batch["input_ids"] % 3 == 0, batch["input_ids"], -100)
            output = model(**batch, labels=labels)
            seen = labels != -100
            wanted = torch.nn.functional.cross_entropy(output.logits[seen], labels[seen])
    torch.testing.assert_close(output.loss, wanted)


@pytest.mark.parametrize(
    ("problem", "number", "labels"),
    [
        ("regression", 1, torch.tensor([0.5, 1.0, -2.0])),
        ("multi_label_classification", 4, torch.eye(4)[:3]),
    ],
)
def test_other_losses_of_sequence_classification(exported, problem, number, labels):
    folder = exported(positions="both").discriminator
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, trust_remote_code=True, num_labels=number, problem_type=problem
    ).eval()
    output = model(**sentences(folder), labels=labels)
    functional = torch.nn.functional
    if problem == "regression":
        wanted = functional.mse_loss(output.logits[:, 0], labels)
    else:
        wanted = functional.binary_cross_entropy_with_logits(output.logits, labels)
    torch.testing.assert_close(output.loss, wanted)


def test_generator_stays_tied_when_its_vocabulary_grows(source, vocab):
    model = AutoModelForMaskedLM.from_pretrained(source.generator, trust_remote_code=True)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    model.resize_token_embeddings(vocab.size + 3)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model(input_ids=torch.tensor([[vocab.size + 2]])).logits.shape == (1, 1, vocab.size + 3)


def test_a_wrong_kind_of_positions_is_refused(exported, tmp_path):
    config = json.loads((exported(positions="both").discriminator / "config.json").read_text())
    with pytest.raises(ValueError, match="positions must be"):
        modeling_electra_rel.ElectraRelConfig(**{**config, "positions": "absolute"})
