"""Recipes, files and overrides: precedence, extends, strict types, messages, exact round trips."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_ds.config.errors import InputError
from electra_ds.config.layers import overrides_layer, read_layer
from electra_ds.config.loading import build, dump, flatten, load_config, load_frozen
from electra_ds.config.recipes import recipe_names
from electra_ds.config.schema import Config
from electra_ds.config.typed import leaf_types


def refusal(call, *args, **kwargs) -> str:
    """Return the message of the InputError that the call must raise: one line."""
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


# Precedence


def test_precedence_recipe_files_command_line(tmp_path):
    first = write(tmp_path / "a.yaml", "train: {batch: 64, steps: 10}\noptimizer: {lr: 3e-4}\n")
    second = write(tmp_path / "b.yaml", "train:\n  steps: 20\n")
    config = load_config("tiny_electra", ["optimizer.lr=1/4"], [first, second])
    assert (config.train.batch, config.train.steps, config.optimizer.lr) == (64, 20, 0.25)
    assert config.model == load_config("tiny_electra").model


def test_the_last_override_of_a_key_wins():
    assert load_config("tiny_electra", ["train.steps=5", "train.steps=6"]).train.steps == 6


def test_defaults_fill_what_no_layer_sets(tmp_path):
    config = load_config(write(tmp_path / "r.yaml", "seed: 7\n"))
    assert config == dataclasses.replace(Config(), seed=7)


# extends


def test_extends_a_file_beside_it_and_a_shipped_recipe(tmp_path):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "root.yaml", "extends: tiny_electra\nmodel: {hidden: 64}\ntrain: {batch: 8}\n")
    child = write(tmp_path / "sub" / "child.yaml", "extends: ../root.yaml\ntrain: {batch: 4}\n")
    config = load_config(child)
    assert (config.model.hidden, config.train.batch, config.model.layers) == (64, 4, 4)


def test_extends_in_a_circle(tmp_path):
    write(tmp_path / "a.yaml", "extends: b.yaml\n")
    write(tmp_path / "b.yaml", "extends: ./a.yaml\n")
    message = refusal(load_config, tmp_path / "a.yaml")
    assert "circle" in message
    assert "a.yaml" in message
    assert "b.yaml" in message


def test_extends_something_unknown_names_the_file_and_the_nearest(tmp_path):
    path = write(tmp_path / "a.yaml", "extends: tiny_elektra\n")
    message = refusal(load_config, path)
    assert str(path) in message
    assert "did you mean 'tiny_electra'" in message
    assert "extends must be one recipe name" in refusal(
        load_config, write(tmp_path / "b.yaml", "extends: [tiny_mlm]\n")
    )


def test_unknown_recipe_lists_all_and_names_the_nearest(tmp_path):
    message = refusal(load_config, "base_hpdist")
    assert "did you mean 'base_hp_dist'" in message
    assert all(name in message for name in recipe_names())
    assert "missing.yaml" in refusal(load_config, tmp_path / "missing.yaml")


def test_a_shipped_name_wins_over_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "tiny_mlm", "seed: 99\n")
    write(tmp_path / "own", "seed: 98\n")
    assert load_config("tiny_mlm").seed == 1
    assert load_config("./tiny_mlm").seed == 99
    assert load_config("own").seed == 98


# What a file may hold


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["empty"]),
        ("# only a comment\n", ["empty"]),
        ("- a\n- b\n", ["key: value"]),
        ("train:\n  batch: [1\n", ["line 3", "not valid YAML"]),
        ("train:\n\tbatch: 1\n", ["line 2", "not valid YAML"]),
        ("seed: 1\nseed: 2\n", ["line 2", "'seed'", "second time"]),
        ("train: {batch: 1, batch: 2}\n", ["line 1", "'batch'", "second time"]),
        ("seed: !!python/object/apply:os.getcwd []\n", ["line 1", "not valid YAML"]),
        ("seed: 1\n---\nseed: 2\n", ["not valid YAML"]),
        ("train: &t {batch: *t}\n", ["train.batch"]),
        ("train.batch: 3\n", ["train.batch", "under train:"]),
        ("model:\n  generator.width: 0.5\n", ["under model.generator:"]),
        ("model: {hiden: 3}\n", ["unknown key 'model.hiden'", "did you mean 'model.hidden'"]),
        ("optimzer: {lr: 3}\n", ["unknown key 'optimzer'", "did you mean 'optimizer'"]),
        ("train: 3\n", ["train is a section"]),
        ("model: {generator: wide}\n", ["model.generator is a section"]),
        ("train: {batch: {rows: 3}}\n", ["train.batch must be an integer"]),
        ("1: 2\n", ["unknown key '1'"]),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path, text, parts):
    path = write(tmp_path / "r.yaml", text)
    message = refusal(load_config, path)
    assert all(part in message for part in [str(path), *parts]), message


def test_unreadable_files(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"seed: 1 # caf\xe9\n")
    assert "not UTF-8 at byte 13" in refusal(load_config, tmp_path / "latin.yaml")
    (tmp_path / "nul.yaml").write_bytes(b"seed: \x00\n")
    assert "not valid YAML" in refusal(load_config, tmp_path / "nul.yaml")
    assert "missing.yaml" in refusal(load_config, "tiny_mlm", [], [tmp_path / "missing.yaml"])
    write(tmp_path / "deep.yaml", "a: " + "[" * 5000)
    assert "not valid YAML" in refusal(load_config, tmp_path / "deep.yaml")


def test_a_section_with_nothing_under_it_is_fine(tmp_path):
    path = write(tmp_path / "r.yaml", "extends: tiny_mlm\ntrain:\n#  batch: 8\n")
    assert load_config(path) == load_config("tiny_mlm")


def test_the_file_of_a_late_layer_is_blamed_not_the_recipe(tmp_path):
    path = write(tmp_path / "late.yaml", "train: {batch: 0}\n")
    assert refusal(load_config, "tiny_mlm", [], [path]).startswith(f"{path}: train.batch=0")


# Overrides


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("train.steps", ["not key=value"]),
        ("=3", ["not key=value"]),
        ("lr=3", ["unknown key 'lr'", "did you mean 'optimizer.lr'"]),
        ("steps=3", ["did you mean 'train.steps'"]),
        ("weight=3", ["did you mean 'objective.hp.weight'"]),
        ("model.hiden=3", ["did you mean 'model.hidden'"]),
        ("extends=tiny_mlm", ["unknown key 'extends'"]),
        ("data={seq_len: 64}", ["data is a section"]),
        ("model.generator=null", ["model.generator is a section"]),
        ("train.batch=[1", ["train.batch", "not valid YAML"]),
        ("train.batch=", ["train.batch must be an integer", "null"]),
        ("train.batch.rows=3", ["unknown key 'train.batch.rows'"]),
    ],
)
def test_a_bad_override_names_the_command_line(override, parts):
    message = refusal(load_config, "tiny_mlm", [override])
    assert all(part in message for part in ["command line", *parts]), message


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_override_is_taken_or_refused_in_one_line(key, value):
    for name in (key, "train.batch", "optimizer.lr", "train.duration", "optimizer.betas", "data.pack"):
        try:
            layer = overrides_layer([f"{name}={value}"])
        except InputError as error:
            message = str(error)
        else:
            message = ""
            assert set(layer.values) == {name.strip()}
        assert "\n" not in message


LEAVES = {
    bool: st.booleans(),
    int: st.integers(-(2**70), 2**70),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(blacklist_categories=["Cs"]), max_size=20),
}


def strategy_for(annotation):
    if annotation in LEAVES:
        return LEAVES[annotation]
    return st.from_type(annotation).filter(
        lambda value: "nan" not in repr(value) and "inf" not in repr(value)
    )


TREES = st.fixed_dictionaries({key: strategy_for(annotation) for key, annotation in leaf_types().items()})


@given(st.data())
def test_dump_round_trips_exactly_whatever_the_values(tmp_path_factory, data):
    values = data.draw(TREES)
    config = build(values)
    path = tmp_path_factory.mktemp("dumped") / "config.yaml"
    path.write_text(dump(config), encoding="utf-8", newline="")
    loaded = build(read_layer(path).values)
    assert loaded == config
    assert repr(loaded) == repr(config)  # types too: 1 is not 1.0


@given(
    lr=st.floats(1e-300, 1e300),
    width=st.sampled_from([0.25, 0.5, 1 / 3, 1.0]),
    seed=st.integers(0, 2**63 - 1),
    every=st.one_of(st.integers(1, 10**12), st.integers(1, 999).map(lambda n: f"{n}min")),
    stop=st.none() | st.integers(1, 10**9),
    betas=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
)
def test_overrides_arrive_exactly_and_the_frozen_file_loads_back(
    tmp_path_factory, lr, width, seed, every, stop, betas
):
    overrides = [
        f"optimizer.lr={lr!r}",
        f"model.generator.width={width!r}",
        f"seed={seed}",
        f"train.checkpoint_every={every}",
        f"train.stop_after={'null' if stop is None else stop}",
        f"optimizer.betas={list(betas)!r}",
    ]
    config = load_config("base_hp_dist", overrides)
    assert config.optimizer.lr == lr
    assert config.model.generator.width == width
    assert config.optimizer.betas == betas
    assert (config.seed, config.train.checkpoint_every, config.train.stop_after) == (seed, every, stop)
    path = tmp_path_factory.mktemp("frozen") / "config.yaml"
    path.write_text(dump(config), encoding="utf-8")
    assert load_frozen(path) == config
    assert load_config(path) == config


# The frozen file


def test_flatten_has_every_key_once():
    flat = flatten(load_config("tiny_hp_dist"))
    assert list(flat) == list(leaf_types())
    assert flat["objective.hp.weight_clip"] == 10.0


def test_a_truncated_frozen_file_is_refused(tmp_path):
    text = dump(load_config("tiny_mlm"))
    cut = write(tmp_path / "config.yaml", text[: text.index("train:")])
    assert "the section 'train' is missing" in refusal(load_frozen, cut)
    assert "cannot be read" in refusal(load_frozen, tmp_path / "none.yaml")


def test_a_frozen_file_of_an_older_release_takes_defaults_for_new_keys(tmp_path):
    config = load_config("tiny_mlm")
    text = "".join(line for line in dump(config).splitlines(True) if "max_skipped" not in line)
    assert load_frozen(write(tmp_path / "config.yaml", text)) == config
