"""What a run leaves behind: tags, run folder, log; read back from real files."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_runs import CPU, arguments, read_metrics, run

TAGS = (
    *("loss/total", "loss/mlm", "loss/rtd", "loss/hp"),
    *("generator/accuracy", "generator/max_prob", "generator/sampled_original"),
    *("discriminator/accuracy", "discriminator/accuracy_masked", "discriminator/auc"),
    *("discriminator/precision", "discriminator/recall"),
    *("sampling/hardness_correlation", "sampling/effective_sample_size", "sampling/clipped"),
    *("optim/lr", "optim/grad_norm", "optim/loss_scale", "optim/skipped"),
    *("perf/tokens_per_s", "perf/mfu", "perf/data_wait", "perf/step_ms", "perf/memory"),
    *("progress/real_tokens", "progress/epoch"),
)


def points(folder) -> dict:
    accumulator = EventAccumulator(str(folder / "tb"))
    accumulator.Reload()
    return {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}


@pytest.fixture(scope="module")
def finished(shards, tmp_path_factory):
    """A run of 20 steps, killed in effect at step 15 (its last checkpoint is 10) and resumed."""
    output = tmp_path_factory.mktemp("outputs") / "run.v1"
    words = arguments(
        shards, output, "--eval-data", str(shards / "heldout"), "train.steps=20", "train.eval_every=10",
        "train.checkpoint_every=10", "train.log_every=5", "objective.hp.start_step=5", recipe="tiny_hp_dist",
    )  # fmt: skip
    assert run([*words, "train.stop_after=15"]).code == 75
    newest = output / "checkpoints" / "step-00000015"
    (newest / "complete.json").unlink()  # as if it had been killed while saving
    result = run(words)
    assert result.code == 0, result.err
    return output, result


def test_every_tag_of_the_contract_has_each_step_once(finished):
    output, _ = finished
    scalars = points(output)
    for tag in TAGS:
        assert [event.step for event in scalars[tag]] == [5, 10, 15, 20], tag
    for tag in ("eval/loss/total", "eval/discriminator/auc", "eval/generator/accuracy"):
        assert [event.step for event in scalars[tag]] == [10, 20], tag


def test_metrics_are_flat_json_and_equal_the_curves(finished):
    output, _ = finished
    lines = [line for line in read_metrics(output) if "loss/total" in line]
    assert [line["step"] for line in lines] == [5, 10, 15, 20]
    curve = points(output)["loss/mlm"]
    assert [event.value for event in curve] == pytest.approx([line["loss/mlm"] for line in lines], rel=1e-6)
    weighted = lines[-1]["loss/mlm"] + 50 * lines[-1]["loss/rtd"] + lines[-1]["loss/hp"]
    assert lines[-1]["loss/total"] == pytest.approx(weighted, rel=1e-9)


def test_the_run_folder_tells_how_it_was_made(finished, shards):
    output, result = finished
    environment = json.loads((output / "environment.json").read_text())
    assert environment["world_size"] == 1
    assert environment["packages"]["torch"]
    assert json.loads((output / "ds_config.json").read_text())["train_batch_size"] == 8
    assert json.loads((output / "status.json").read_text())["state"] == "finished"
    assert (output / "tokenizer" / "tokenizer.json").read_bytes() == (
        shards / "tokenizer" / "tokenizer.json"
    ).read_bytes()
    assert "8 = 8 per rank × 1 accumulation × 1 rank" in (output / "log.txt").read_text()
    assert "next: electra-ds export" in result.out
    assert not list(output.rglob("*.py"))


def test_dry_run_states_everything_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(["--recipe", "base_hp_dist", "--dry-run"])
    assert result.code == 0, result.err
    for words in ("256 = ", "GFLOP a token", "own modelling file", "seq_len: 512", "120.2"):
        assert words in result.out, words
    assert "stock ELECTRA" in run(["--recipe", "small_electra", "--dry-run"]).out
    assert not list(tmp_path.iterdir())
    assert CPU.is_file()


def test_mlm_trains_no_discriminator(shards, tmp_path):
    output = tmp_path / "run"
    assert run(arguments(shards, output, "train.steps=5", recipe="tiny_mlm")).code == 0
    assert not [tag for tag in read_metrics(output)[-1] if tag.startswith("discriminator")]
