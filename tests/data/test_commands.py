"""The commands ``tokenizer`` and ``prepare``, through their parsers."""

import argparse
import json

import pytest

from electra_ds.config.errors import InputError
from electra_ds.data.commands import parse_size, register
from electra_ds.data.manifest import load_manifest


def _run(*words):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers(required=True))
    args = parser.parse_args([str(word) for word in words])
    return args.func(args)


def test_from_text_to_checked_shards(corpus_file, tmp_path, capsys):
    tok, out = tmp_path / "tok", tmp_path / "my shards"
    assert _run("tokenizer", "--input", corpus_file, "--vocab-size", "300", "--output", tok) == 0
    assert f"--tokenizer {tok}" in capsys.readouterr().out
    words = ("--input", corpus_file, "--tokenizer", tok, "--output", out, "--held-out", "0.1")
    terms = ("--source", "made up", "--license", "CC0", "--date", "2024-01-02")
    assert _run("prepare", *words, *terms, "--record-tokens", "600", "--shard-size", "64k") == 0
    printed = capsys.readouterr().out
    assert f"--data '{out}' --eval-data '{out}/heldout'" in printed
    manifest = load_manifest(out)
    assert manifest.provenance["licence"] == "CC0"
    assert manifest.provenance["date"] == "2024-01-02"
    assert len(manifest.shards) > 1
    assert _run("prepare", "--check", out) == 0
    assert "next: " in capsys.readouterr().out
    shard = out / "shard-000001.tar"
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InputError, match=r"shard-000001\.tar"):
        _run("prepare", "--check", out)


def test_options_reach_the_reading(text_file, tokenizer_folder, tmp_path):
    path = text_file("".join(json.dumps({"body": f"bada {n}"}) + "\n" for n in range(5)), "corpus.data")
    words = ("--input", path, "--tokenizer", tokenizer_folder, "--output", tmp_path / "out")
    assert _run("prepare", *words, "--format", "jsonl", "--text-field", "body", "--sentences", "none") == 0
    manifest = load_manifest(tmp_path / "out")
    assert manifest.counts["documents"] == 5
    assert manifest.settings["text_field"] == "body"
    assert manifest.settings["sentences"] == "none"


def test_tokenizer_never_writes_over_anything(corpus_file, tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(InputError, match="choose another --output"):
        _run("tokenizer", "--input", corpus_file, "--vocab-size", "300", "--output", tmp_path)


def test_prepare_says_what_is_missing(corpus_file):
    with pytest.raises(InputError, match="--tokenizer and --output"):
        _run("prepare", "--input", corpus_file)


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64M", 64 << 20), ("2g", 2 << 30), ("1.5k", 1536), ("0", 0)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "ten", "1.5", "5T", "infM"])
def test_bad_sizes_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="64M"):
        parse_size(text)


@pytest.mark.parametrize("command", ["tokenizer", "prepare"])
def test_help_shows_an_example(command, capsys):
    with pytest.raises(SystemExit):
        _run(command, "--help")
    assert f"  electra-ds {command} --input" in capsys.readouterr().out
