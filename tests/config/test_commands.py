"""``electra-ds recipes``: list, show, copy."""

import argparse

import pytest

from electra_ds.config.commands import register
from electra_ds.config.errors import InputError
from electra_ds.config.loading import load_config
from electra_ds.config.recipes import recipe_names


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(prog="electra-ds")
    register(program.add_subparsers(required=True))
    return program


def run(*words: str) -> int:
    args = parser().parse_args(["recipes", *words])
    return args.func(args)


def test_ls_has_a_line_for_each_recipe_and_the_next_command(capsys):
    assert run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == recipe_names()
    assert all(len(line.split()) > 3 for line in lines[:-2])
    assert lines[-1].startswith("next: electra-ds recipes show ")


@pytest.mark.parametrize("name", ["base_hp_dist", "tiny_mlm"])
def test_show_prints_yaml_that_is_itself_a_recipe(capsys, tmp_path, name):
    assert run("show", name) == 0
    out = capsys.readouterr().out
    path = tmp_path / "shown.yaml"
    path.write_text(out, encoding="utf-8")
    assert load_config(path) == load_config(name)
    assert out.splitlines()[-1].startswith(f"# next: electra-ds recipes cp {name}")


def test_show_takes_a_path(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: tiny_mlm\nseed: 5\n", encoding="utf-8")
    assert run("show", str(path)) == 0
    assert "seed: 5" in capsys.readouterr().out


@pytest.mark.parametrize("name", recipe_names())
def test_cp_gives_a_working_recipe(capsys, tmp_path, name):
    target = tmp_path / "mine.yaml"
    assert run("cp", name, str(target)) == 0
    assert load_config(target) == load_config(name)
    assert f"--recipe {target}" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "file", "part"),
    [
        ("tiny_mlm", "there.yaml", "is not overwritten"),
        ("tiny_mlm", "mine.txt", "ends in .yaml"),
        ("tiny_mlm", "no/such/folder.yaml", "cannot be written"),
        ("tiny_ml", "mine.yaml", "did you mean 'tiny_mlm'"),
        ("./there.yaml", "mine.yaml", "no shipped recipe"),
    ],
)
def test_cp_refuses(tmp_path, monkeypatch, name, file, part):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.yaml").write_text("seed: 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=part):
        run("cp", name, file)
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]
    assert (tmp_path / "there.yaml").read_text(encoding="utf-8") == "seed: 3\n"


@pytest.mark.parametrize("words", [[], ["ls"], ["show"], ["cp"]])
def test_help_shows_an_example(capsys, words):
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["recipes", *words, "--help"])
    assert caught.value.code == 0
    assert "example:\n  electra-ds recipes" in capsys.readouterr().out
