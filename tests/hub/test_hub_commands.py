"""The commands ``export`` and ``detect`` as a person or a script types them."""

import argparse
import io
import json
import re
import subprocess
import sys
import types

import pytest
from hub_models import make_config, make_model

from electra_ds.config.errors import InputError
from electra_ds.config.loading import dump
from electra_ds.hub.commands import register
from electra_ds.hub.detect import Detection, Word
from electra_ds.hub.show import render, wants_colour


def electra_ds(*arguments: object) -> int:
    parser = argparse.ArgumentParser(prog="electra-ds")
    register(parser.add_subparsers(required=True))
    args = parser.parse_args([str(argument) for argument in arguments])
    return args.func(args)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pipe(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


@pytest.fixture(params=["absolute", "both"])
def run(request, vocab, tokenizer_folder, tmp_path, monkeypatch):
    """A run folder whose two checkpoints hold what a stand-in for the training room's loader gives."""
    folder = tmp_path / "runs" / "mine"
    config = make_config(positions=request.param)
    (folder / "checkpoints" / "step-00000020").mkdir(parents=True)
    (folder / "checkpoints" / "step-00000040").mkdir()
    (folder / "config.yaml").write_text(dump(config))
    names = ("pad", "unk", "cls", "sep", "mask")
    manifest = {
        "format": 1,
        "provenance": {"source": "made up"},
        "counts": {"tokens": 99},
        "tokenizer": {
            "sha256": vocab.sha256,
            "vocab_size": vocab.size,
            "special_ids": {name: getattr(vocab, f"{name}_id") for name in names},
        },
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = [{"step": step, "loss/total": step / 8} for step in (20, 40)]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 60, "lo'
    (folder / "metrics.jsonl").write_text(text)
    (folder / "tokenizer").symlink_to(tokenizer_folder)

    newest = types.SimpleNamespace(newest_whole=lambda path: path / "checkpoints" / "step-00000040")
    state = make_model(config, vocab).state_dict()
    weights = types.SimpleNamespace(load_fp32_state=lambda checkpoint: state)
    monkeypatch.setitem(sys.modules, "electra_ds.training.checkpoint", newest)
    monkeypatch.setitem(sys.modules, "electra_ds.training.weights", weights)
    return folder


def test_export_then_detect_as_the_last_line_says(run, tmp_path, capsys):
    assert electra_ds("export", run, "--output", tmp_path / "out", "--license", "cc-by-4.0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"wrote {tmp_path / 'out' / name}" for name in ("discriminator", "generator")]
    own_file = "positions: both" in (run / "config.yaml").read_text()
    assert any("trust_remote_code=True" in line for line in lines) == own_file
    card = (tmp_path / "out" / "generator" / "README.md").read_text()
    assert "license: cc-by-4.0" in card
    assert "pretrained for 40 steps" in card
    assert "| loss/total | 5 |" in card

    assert lines[-1].startswith("next: electra-ds detect --model ")
    following = re.fullmatch(r'next: electra-ds (detect) (--model) (\S+) "(.*)"', lines[-1]).groups()
    assert electra_ds(*following) == 0
    assert "chef" in capsys.readouterr().out


def test_export_of_one_checkpoint(run, tmp_path, capsys):
    checkpoint = run / "checkpoints" / "step-00000020"
    assert electra_ds("export", checkpoint, "--output", tmp_path / "out") == 0
    card = (tmp_path / "out" / "discriminator" / "README.md").read_text()
    assert "pretrained for 20 steps" in card
    assert "| loss/total | 2.5 |" in card
    with pytest.raises(InputError, match="is not empty"):
        electra_ds("export", checkpoint, "--output", tmp_path / "out")


def test_sources_that_are_no_run_are_explained(run, exported, tmp_path):
    output = tmp_path / "out"
    for source, message in {
        tmp_path / "nowhere": "no such folder",
        tmp_path: "neither a run folder",
        exported().folder: "already an exported folder",
        exported().discriminator: "already an exported folder",
    }.items():
        with pytest.raises(InputError, match=message):
            electra_ds("export", source, "--output", output)
    with pytest.raises(InputError, match="no licence identifier"):
        electra_ds("export", run, "--output", output, "--license", "mine\ntags: x")
    (run / "manifest.json").write_text('{"tokenizer": {}}')
    with pytest.raises(InputError, match=r"manifest\.json: damaged"):
        electra_ds("export", run, "--output", output)
    (run / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read"):
        electra_ds("export", run, "--output", output)
    assert not output.exists()


def test_a_checkpoint_of_another_vocabulary_is_wrong_input(run, tmp_path):
    text = (run / "config.yaml").read_text().replace("hidden: 32", "hidden: 64")
    (run / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"step-00000040: does not fit .*config\.yaml"):
        electra_ds("export", run, "--output", tmp_path / "out")


def test_json_is_one_object_a_line_and_nothing_else(exported, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the meal ate the chef\r\n\n  \né 我\n", encoding="utf-8")
    folder = exported(positions="both").discriminator
    assert electra_ds("detect", "--model", folder, "--json", "the chef ate", "--input", text) == 0
    captured = capsys.readouterr()
    records = [json.loads(line) for line in captured.out.splitlines()]
    assert [record["text"] for record in records] == ["the chef ate", "the meal ate the chef", "é 我"]
    for record in records:
        assert {word["word"] for word in record["words"]} == set(record["text"].split())
        assert all(0 <= word["replaced"] <= 1 for word in record["words"])
        top = max(record["words"], key=lambda word: word["replaced"])
        assert record["most_distrusted"] == top["word"]
    assert "next: electra-ds detect" in captured.err


@pytest.mark.parametrize("arguments", [(), ("--input", "-")])
def test_a_pipe_is_read(exported, arguments, monkeypatch, capsys):
    pipe(monkeypatch, b"the chef\nate the meal\n")
    assert electra_ds("detect", "--model", exported().discriminator, *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")][:2] == ["the chef", "ate the meal"]
    assert sum("<- most distrusted" in line for line in lines) == 2
    assert lines[-1].startswith("next: electra-ds detect")
    assert "\x1b" not in "".join(lines)


def test_wrong_texts_are_refused(exported, monkeypatch, tmp_path):
    folder = exported().discriminator
    pipe(monkeypatch, b"fine\nbroken \xd7\n")
    with pytest.raises(InputError, match="stdin: byte 12 is not UTF-8"):
        electra_ds("detect", "--model", folder)
    pipe(monkeypatch, b" \n")
    with pytest.raises(InputError, match="no sentence was found"):
        electra_ds("detect", "--model", folder)
    with pytest.raises(InputError, match="no such file"):
        electra_ds("detect", "--model", folder, "--input", tmp_path / "absent.txt")
    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(InputError, match="no sentence was given"):
        electra_ds("detect", "--model", folder)


def test_a_long_sentence_is_cut_with_a_note(exported, capsys):
    assert electra_ds("detect", "--model", exported().discriminator, "chef " * 200) == 0
    assert "sentence 1 is longer than the 160 tokens" in capsys.readouterr().err


def test_colour_is_for_terminals(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())

    found = Detection(
        "a bad day", (Word("a", 0, 1, 0.01), Word("bad", 2, 5, 0.9), Word("day", 6, 9, 0.3)), False
    )
    plain, coloured = render(found, colour=False), render(found, colour=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert [line for line in coloured.splitlines() if "\x1b[31m" in line] == [coloured.splitlines()[2]]
    assert "bad  0.900" in plain
    assert plain.splitlines()[2].endswith("<- most distrusted")


def test_help_needs_no_torch():
    code = (
        "import argparse, sys\n"
        "from electra_ds.hub.commands import register\n"
        "register(argparse.ArgumentParser().add_subparsers())\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'safetensors'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
