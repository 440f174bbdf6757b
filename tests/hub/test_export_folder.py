"""What an exported folder holds, and that nothing half-written or foreign is touched."""

import ast
import json
import re

import pytest
import torch
from hub_models import FACTS, MAX_POSITIONS, make_config, make_model
from safetensors.torch import load_file
from transformers import AutoTokenizer

from electra_ds.config.errors import InputError, RunFailure
from electra_ds.hub import export as export_module
from electra_ds.hub.export import export_state
from electra_ds.hub.names import LayoutError

TEXTS = [
    "The Chef cooked the MEAL.",
    "müsste mochte möchte cafe\u0301 café Straße",
    "我喜欢 meal 0123",
    "tab\there \u2029 line\x0c break \x00 \U0001f600",
    "",
    "[MASK] the [SEP]",
]


@pytest.mark.parametrize("positions", ["absolute", "both"])
@pytest.mark.parametrize("network", ["discriminator", "generator"])
def test_tokenizer_of_the_folder_gives_the_ids_of_the_shards_tokenizer(
    exported, tokenizer_folder, positions, network
):
    from tokenizers import Tokenizer

    ours = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    folder = exported(positions=positions).folder / network
    theirs = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text).ids, text
    first, second = TEXTS[:2]
    pair = theirs(first, second)
    assert pair["input_ids"] == ours.encode(first, second).ids
    assert pair["token_type_ids"] == ours.encode(first, second).type_ids
    assert (theirs.pad_token_id, theirs.mask_token_id) == (0, 4)
    assert theirs.model_max_length == MAX_POSITIONS


def test_sizes_in_the_folder_agree(exported, vocab):
    folder = exported().discriminator
    config = json.loads((folder / "config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert max(tokenizer.get_vocab().values()) == config["vocab_size"] - 1 == vocab.size - 1
    assert tokenizer.model_max_length <= config["max_position_embeddings"]
    long = tokenizer("the chef " * 200, "ate " * 200, truncation=True)
    assert len(long["input_ids"]) == MAX_POSITIONS


@pytest.mark.parametrize("positions", ["absolute", "relative"])
@pytest.mark.parametrize("network", ["discriminator", "generator"])
def test_card_states_the_run_and_its_code_runs(exported, positions, network, monkeypatch, capsys):
    folder = exported(positions=positions).folder / network
    card = (folder / "README.md").read_text(encoding="utf-8")
    facts = "tiny-run", "1,234 steps", "license: apache-2.0", "made up", "4321", "CC0-1.0", "0.71", "12.5"
    for fact in facts:
        assert fact in card
    assert ("trust_remote_code=True" in card) == (positions != "absolute")
    assert ("custom_code" in card) == (positions != "absolute")

    (code,) = re.findall(r"```python\n(.*?)```", card, re.S)
    monkeypatch.chdir(folder)
    exec(code, {})
    output = capsys.readouterr().out
    if network == "discriminator":
        assert re.search(r"^chef +0\.\d{3}$", output, re.M)
    else:
        assert len(ast.literal_eval(output)) == 5


def test_the_modelling_file_travels_only_where_it_is_needed(exported):
    stock, own = exported(positions="absolute").discriminator, exported(positions="both").discriminator
    assert not list(stock.glob("*.py"))
    assert [path.name for path in own.glob("*.py")] == ["modeling_electra_rel.py"]
    assert "auto_map" not in json.loads((stock / "config.json").read_text())


@pytest.fixture
def export_to(vocab, tokenizer_folder):
    """Export a small model somewhere."""
    config = make_config()
    state = make_model(config, vocab).state_dict()

    def run(output, state=state, config=config, vocab=vocab, tokenizer=tokenizer_folder):
        return export_state(state, config, vocab, tokenizer, output, FACTS)

    run.state = state
    return run


def test_export_is_refused_where_something_lies(export_to, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"out: is not empty"):
        export_to(output)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(("out", ".out"))] == ["out"]
    assert [path.name for path in output.iterdir()] == ["thesis.txt"]
    with pytest.raises(InputError, match=r"thesis.txt: is a file"):
        export_to(output / "thesis.txt")
    with pytest.raises(InputError, match="cannot be made"):
        export_to(output / "thesis.txt" / "below")


def test_empty_new_and_linked_folders_are_filled(export_to, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("empty", "new/deep", "link"):
        folders = export_to(tmp_path / name)
        assert [path.name for path in folders] == ["discriminator", "generator"]
        assert (tmp_path / name / "discriminator" / "model.safetensors").is_file()
    assert (tmp_path / "link").is_symlink()


def test_a_failure_leaves_nothing_behind(export_to, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    output = tmp_path / "out"
    monkeypatch.setattr(export_module, "copy_tokenizer", full)
    with pytest.raises(RunFailure, match="No space left"):
        export_to(output)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_exports_of_one_state_are_equal_to_the_byte(export_to, tmp_path):
    files = {}
    for name in ("a", "b"):
        export_to(tmp_path / name)
        folder = tmp_path / name
        files[name] = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
    assert files["a"] == files["b"]


def test_weights_may_be_views_of_one_flat_buffer(export_to, tmp_path):
    flat = torch.cat([tensor.flatten() for tensor in export_to.state.values()])
    views, start = {}, 0
    for name, tensor in export_to.state.items():
        views[name] = flat[start : start + tensor.numel()].view(tensor.shape)
        start += tensor.numel()
    export_to(tmp_path / "views", state=views)
    export_to(tmp_path / "plain")
    for network in ("discriminator", "generator"):
        loaded = [load_file(tmp_path / kind / network / "model.safetensors") for kind in ("views", "plain")]
        assert loaded[0].keys() == loaded[1].keys()
        assert all(torch.equal(loaded[0][name], loaded[1][name]) for name in loaded[0])


def test_a_state_of_another_configuration_is_refused(export_to, vocab, tmp_path):
    output = tmp_path / "out"
    cases = {
        "missing: rtd_head.dense.bias": {
            k: v for k, v in export_to.state.items() if k != "rtd_head.dense.bias"
        },
        "unexplained: discriminator.gate.weight": {
            **export_to.state,
            "discriminator.gate.weight": torch.ones(2),
        },
        "position_embeddings.weight is missing": {
            k: v for k, v in export_to.state.items() if k != "embeddings.position.weight"
        },
        "neither a discriminator nor a generator": {},
    }
    for message, state in cases.items():
        with pytest.raises(LayoutError, match=re.escape(message)):
            export_to(output, state=state)
    with pytest.raises(LayoutError, match=r"is \(16,\), expected \(32,\)"):
        export_to(output, config=make_config(embedding=32))
    assert not output.exists()


def test_another_tokenizer_is_refused(export_to, tokenizer_folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(InputError, match=r"tokenizer\.json: missing"):
        export_to(tmp_path / "out", tokenizer=other)
    text = (tokenizer_folder / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(text + " ", encoding="utf-8")
    with pytest.raises(InputError, match="not the tokenizer that the shards were made with"):
        export_to(tmp_path / "out", tokenizer=other)
    assert not (tmp_path / "out").exists()


def test_only_the_tokenizers_files_travel(export_to, tokenizer_folder, tmp_path):
    mine = tmp_path / "tokenizer"
    mine.mkdir()
    for path in tokenizer_folder.iterdir():
        (mine / path.name).write_bytes(path.read_bytes())
    (mine / "secret.env").write_text("TOKEN=1")
    export_to(tmp_path / "out", tokenizer=mine)
    assert not list((tmp_path / "out").rglob("secret.env"))
    assert {path.name for path in (tmp_path / "out" / "generator").iterdir()} == {
        "model.safetensors",
        "config.json",
        "README.md",
        *(path.name for path in tokenizer_folder.iterdir()),
    }
