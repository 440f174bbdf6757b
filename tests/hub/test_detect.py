"""Detection on folders that someone else may have made."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForPreTraining, AutoTokenizer, ElectraConfig, ElectraForPreTraining

from electra_ds.config.errors import InputError
from electra_ds.hub.detect import Detector

TEXT = "The chef  cooked the meal, müsste."
WORDS = ["The", "chef", "cooked", "the", "meal", ",", "müsste", "."]
RAN = "CODE OF THE FOLDER RAN"


@pytest.fixture
def folder(exported, tmp_path):
    """A copy of an exported discriminator that a test may spoil."""

    def copy(positions: str = "absolute") -> Path:
        return Path(shutil.copytree(exported(positions=positions).discriminator, tmp_path / "model"))

    return copy


def detect(folder: Path, text: str = TEXT):
    (found,) = Detector(folder).detect([text])
    return found


@pytest.mark.parametrize("positions", ["absolute", "relative", "both"])
def test_words_have_the_probabilities_that_transformers_gives(folder, positions):
    model_folder = folder(positions)
    found = detect(model_folder)
    assert [word.word for word in found.words] == WORDS
    assert all(TEXT[word.start : word.end] == word.word for word in found.words)
    assert not found.truncated

    trusted = {"trust_remote_code": positions != "absolute"}
    tokenizer = AutoTokenizer.from_pretrained(model_folder, **trusted)
    model = AutoModelForPreTraining.from_pretrained(model_folder, **trusted).eval()
    batch = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        replaced = torch.sigmoid(model(**batch).logits[0]).tolist()
    words = batch.word_ids()
    for number, word in enumerate(found.words):
        expected = max(value for value, owner in zip(replaced, words, strict=True) if owner == number)
        assert word.replaced == pytest.approx(expected, abs=1e-6)
    assert found.most_distrusted.replaced == max(word.replaced for word in found.words)


def test_long_and_empty_texts(folder):
    model_folder = folder()
    long = detect(model_folder, "chef " * 500)
    assert long.truncated
    assert len(long.words) == 160 - 2
    empty = detect(model_folder, "   ")
    assert empty.words == ()
    assert empty.as_record()["most_distrusted"] is None


def test_a_hostile_modelling_file_is_never_run(folder):
    model_folder = folder("both")
    expected = detect(model_folder)
    (model_folder / "modeling_electra_rel.py").write_text(f"raise SystemExit({RAN!r})")
    for name in ("config.json", "tokenizer_config.json"):
        content = json.loads((model_folder / name).read_text())
        content["auto_map"] = {"AutoTokenizer": ["evil.Tokenizer", None], "AutoModel": "evil.Model"}
        content["attn_implementation"] = "someone/kernels"
        (model_folder / name).write_text(json.dumps(content))
    (model_folder / "evil.py").write_text(f"raise SystemExit({RAN!r})")
    assert detect(model_folder) == expected


class Hostile:
    """Unpickling it makes a file."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self):
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.bin"])
def test_a_hostile_pickle_is_refused_unread(folder, tmp_path, name):
    model_folder, victim = folder(), tmp_path / "victim"
    (model_folder / name).write_bytes(pickle.dumps(Hostile(victim)))
    assert len(detect(model_folder).words) == len(WORDS), "beside safetensors it is ignored"
    (model_folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=f"only as {name}, which can run code and is not opened"):
        detect(model_folder)
    (model_folder / "model.safetensors").write_bytes(pickle.dumps(Hostile(victim)))
    with pytest.raises(InputError, match=r"model\.safetensors: damaged"):
        detect(model_folder)
    assert not victim.exists()


def test_sharded_weights_and_a_bare_vocabulary(folder):
    model_folder = folder()
    expected = detect(model_folder)
    tensors = load_file(model_folder / "model.safetensors")
    (model_folder / "model.safetensors").unlink()
    place = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(place.values()):
        save_file({name: tensors[name] for name in tensors if place[name] == file}, model_folder / file)
    index = model_folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": place}))
    (model_folder / "tokenizer.json").unlink()
    assert detect(model_folder) == expected

    index.write_text(json.dumps({"weight_map": dict.fromkeys(place, "../evil.safetensors")}))
    with pytest.raises(InputError, match="outside the folder"):
        detect(model_folder)


def test_a_folder_that_transformers_saved(folder, tmp_path, vocab):
    source = folder()
    torch.manual_seed(1)
    config = ElectraConfig(
        vocab_size=vocab.size, hidden_size=24, num_attention_heads=2, num_hidden_layers=1, hidden_act="relu"
    )
    ElectraForPreTraining(config).save_pretrained(tmp_path / "saved")
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    tensors["electra.embeddings.position_ids"] = torch.arange(512)[None]  # as old releases stored it
    save_file(tensors, tmp_path / "saved" / "model.safetensors", metadata={"format": "pt"})
    assert [word.word for word in detect(tmp_path / "saved").words] == WORDS


def change_config(model_folder: Path, **changes) -> Path:
    path = model_folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return model_folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"hidden_size": "32"}, "describes no model"),
        ({"hidden_size": 33}, "do not fit its config.json"),
        ({"num_hidden_layers": -1}, "describes no model"),
        ({"num_hidden_layers": 3}, "do not fit its config.json"),
        ({"num_hidden_layers": 1}, "do not fit its config.json"),
        ({"max_position_embeddings": 512}, "do not fit its config.json"),
    ],
)
@pytest.mark.parametrize("positions", ["absolute", "both"])
def test_a_configuration_that_does_not_fit(folder, positions, changes, message, capfd):
    with pytest.raises(InputError, match=message):
        detect(change_config(folder(positions), **changes))
    assert capfd.readouterr() == ("", ""), "the error is the one line that people see"


def test_the_tokenizer_of_a_larger_model_is_refused(folder, vocab):
    model_folder = folder()
    path = model_folder / "model.safetensors"
    tensors = load_file(path)
    name = "electra.embeddings.word_embeddings.weight"
    tensors[name] = tensors[name][:40].clone()
    save_file(tensors, path)
    with pytest.raises(InputError, match="put the model's own tokenizer there"):
        detect(change_config(model_folder, vocab_size=40))


def test_other_folders_are_explained(exported, folder, tmp_path):
    source = exported()
    generator, run = tmp_path / "generator", tmp_path / "run"
    shutil.copytree(source.generator, generator)
    run.mkdir()
    (run / "config.yaml").touch()
    cases = {
        source.folder: f"holds several models; pass {source.discriminator}",
        source.generator: f"is a generator; pass the folder of a discriminator, here {source.discriminator}",
        generator: "is a generator; pass the folder of a discriminator",
        run: f"is a run folder; first 'electra-ds export {run}",
        tmp_path / "nowhere": "no such folder",
        source.discriminator / "README.md": "is a file",
        tmp_path: "holds no config.json",
    }
    for path, message in cases.items():
        (tmp_path / "generator" / "config.json").touch()
        with pytest.raises(InputError) as caught:
            detect(path)
        assert str(caught.value).startswith(f"{path}: {message}" if path != tmp_path else str(path))
    spoiled = folder()
    (spoiled / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer"):
        detect(spoiled)
    (spoiled / "config.json").write_text("[1")
    with pytest.raises(InputError, match=r"config\.json: not readable as JSON"):
        detect(spoiled)
