"""Wrong input: one line on stderr that names it and says what to do, exit code 2, nothing half-written."""

import json
import shutil

import pytest
from training_runs import CPU, arguments, run

from electra_ds.training.main import main


def refused(capsys, words: list[str], *needles: str, config=CPU) -> None:
    """Run in this process: everything here is refused before a process group is made."""
    assert main(["--deepspeed_config", str(config), *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    for needle in needles:
        assert needle in err, err


@pytest.fixture(autouse=True)
def _one_process(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored after the test, whatever is set meanwhile
        monkeypatch.delenv(name)


def test_settings(capsys, shards, tmp_path):
    output = tmp_path / "run"
    refused(capsys, arguments(shards, output, recipe="tiny_elektra"), "tiny_elektra", "tiny_electra")
    refused(capsys, arguments(shards, output, "train.stepz=5"), "train.stepz", "train.steps")
    refused(capsys, arguments(shards, output, "train.steps=many"), "train.steps", "many")
    refused(capsys, arguments(shards, output, "data.seq_len=500"), "500", "max_positions")
    refused(capsys, arguments(shards, output, "train.micro_batch=3"), "3", "1, 2, 4")
    assert not output.exists()


def test_batch_that_the_ranks_cannot_share(capsys, shards, tmp_path, monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    refused(capsys, arguments(shards, tmp_path / "run"), "8", "3", "1, 2, 4")


def test_shards(capsys, shards, tmp_path):
    output = tmp_path / "run"
    refused(capsys, arguments(tmp_path / "nowhere", output), "nowhere", "electra-ds prepare")
    copy = tmp_path / "copy"
    shutil.copytree(shards, copy)
    shard = next(copy.glob("*.tar"))
    shard.write_bytes(shard.read_bytes()[:-512])
    refused(capsys, arguments(copy, output), shard.name)
    shard.unlink()
    refused(capsys, arguments(copy, output), shard.name, "missing")
    (copy / "manifest.json").unlink()
    refused(capsys, arguments(copy, output), "manifest.json")
    assert not output.exists()


def test_ds_config(capsys, shards, tmp_path):
    words = arguments(shards, tmp_path / "run")
    path = tmp_path / "ds.json"
    for content, *needles in (
        ({"train_batch_size": 512}, "512", "8"),
        ({"gradient_clipping": 5.0}, "5.0", "optimizer.clip"),
        ({"optimizer": {"type": "Adam"}}, "optimizer"),
        ({"zero_optimisation": {"stage": 1}}, "zero_optimisation", "zero_optimization"),
    ):
        path.write_text(json.dumps(content))
        refused(capsys, words, "ds.json", *needles, config=path)
    path.write_text("{ not json")
    refused(capsys, words, "ds.json", config=path)
    refused(capsys, words, "missing.json", config=tmp_path / "missing.json")


def test_output_that_holds_something_else(shards, tmp_path):
    output = tmp_path / "run"
    assert run(arguments(shards, output, "train.steps=2")).code == 0
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.name != ".lock"}
    for words, needle in (
        (["optimizer.lr=0.5"], "optimizer.lr"),
        (["train.steps=1"], "train.steps"),
        (["--resume", "never"], "holds a run"),
        (["--resume", str(tmp_path / "elsewhere")], "no checkpoint of this run"),
    ):
        result = run([*arguments(shards, output, "train.steps=2"), *words])
        assert result.code == 2, result.err
        assert needle in result.err
        assert "Traceback" not in result.err
    assert before == {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.name != ".lock"}
    other = tmp_path / "notes"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    result = run(arguments(shards, other))
    assert (result.code, [path.name for path in other.iterdir()]) == (2, ["thesis.tex"])


def test_loss_that_stays_not_finite_stops_the_run(shards, tmp_path):
    output = tmp_path / "run"
    words = arguments(
        shards,
        output,
        "train.steps=500",
        "optimizer.lr=1e30",
        "optimizer.warmup_steps=0",
        "train.max_skipped=4",
    )
    result = run(words)
    assert result.code == 1
    assert "not finite" in result.err
    assert "4 steps in a row" in result.err
    assert json.loads((output / "status.json").read_text())["state"] == "failed"


def test_a_checkpoint_that_would_run_code_is_refused(shards, tmp_path):
    import hashlib

    import torch

    output = tmp_path / "run"
    words = arguments(shards, output, "train.steps=4")
    assert run([*words, "train.stop_after=2"]).code == 75
    checkpoint = output / "checkpoints" / "step-00000002"
    victim = checkpoint / "mp_rank_00_model_states.pt"
    torch.save({"module": _Planted(str(tmp_path / "pwned"))}, victim)
    marker = json.loads((checkpoint / "complete.json").read_text())
    content = victim.read_bytes()
    marker["files"][victim.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (checkpoint / "complete.json").write_text(json.dumps(marker))
    result = run(words)
    assert result.code == 2
    assert "would run code" in result.err
    assert not (tmp_path / "pwned").exists()


class _Planted:
    """Unpickling makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))
