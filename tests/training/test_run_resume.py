"""A run cut into pieces is the run in one piece, and is not changed by how its batches are cut."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from training_runs import CPU, ROOT, arguments, read_metrics, run

from electra_ds.config.loading import load_frozen
from electra_ds.data.manifest import load_manifest
from electra_ds.model.build import build_model
from electra_ds.training.checkpoint import list_checkpoints, newest_whole
from electra_ds.training.weights import load_fp32_state


def weights(folder: Path) -> dict:
    return load_fp32_state(newest_whole(folder))


def equal(first: dict, second: dict) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_two_and_three_segments_end_with_the_bits_of_one(shards, tmp_path):
    settings = ("train.steps=20", "model.dropout=0.1", "objective.hp.start_step=8")

    def segment(output: Path, *stops: int) -> dict:
        for stop in stops:
            words = arguments(shards, output, *settings, recipe="tiny_hp_dist")
            result = run([*words, *([f"train.stop_after={stop}"] if stop < 20 else [])])
            assert result.code == (75 if stop < 20 else 0), result.err
            assert json.loads((output / "status.json").read_text())["step"] == stop
        return weights(output)

    straight = segment(tmp_path / "straight", 20)
    assert equal(straight, segment(tmp_path / "two", 10, 20))
    assert equal(straight, segment(tmp_path / "three", 7, 13, 20))
    lines = [read_metrics(tmp_path / name) for name in ("straight", "three")]
    assert [line["step"] for line in lines[1]] == [5, 10, 15, 20]
    for one, other in zip(*lines, strict=True):
        assert one["loss/total"] == pytest.approx(other["loss/total"], rel=1e-12)
        assert one["optim/lr"] == other["optim/lr"]


def test_two_ranks_and_two_micro_steps_agree(shards, tmp_path):
    words = ["train.steps=6", "train.log_every=1", "train.micro_batch=4"]
    assert run(arguments(shards, tmp_path / "accumulated", *words)).code == 0
    assert run(arguments(shards, tmp_path / "ranks", *words), ranks=2).code == 0
    lines = [read_metrics(tmp_path / name) for name in ("accumulated", "ranks")]
    for one, other in zip(*lines, strict=True):
        assert one["progress/real_tokens"] == other["progress/real_tokens"]
        for tag in ("loss/total", "loss/mlm", "loss/rtd", "optim/grad_norm"):
            assert one[tag] == pytest.approx(other[tag], rel=1e-5), tag


def test_sigterm_saves_and_leaves_with_75_and_the_same_command_resumes(shards, tmp_path):
    output = tmp_path / "run"
    words = arguments(shards, output, "train.steps=100000", "train.log_every=1")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "electra_ds.train", "--deepspeed_config", str(CPU), *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not (output / "metrics.jsonl").exists() or len(read_metrics(output)) < 3:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    status = json.loads((output / "status.json").read_text())
    assert status["state"] == "stopped"
    assert "SIGTERM" in status["reason"]
    assert [int(path.name[5:]) for path in list_checkpoints(output)] == [status["step"]]
    result = run([*words, f"train.stop_after={status['step'] + 2}"])
    assert result.code == 75
    assert f"resumed after step {status['step']}" in result.out
    steps = [line["step"] for line in read_metrics(output)]
    assert steps == list(range(1, status["step"] + 3))


def test_a_damaged_newest_checkpoint_is_passed_over(shards, tmp_path):
    output = tmp_path / "run"
    words = arguments(shards, output, "train.steps=4", "train.checkpoint_every=2")
    assert run(words).code == 0
    newest = list_checkpoints(output)[0]
    file = next(newest.glob("*optim_states.pt"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1  # one flipped bit, which DeepSpeed loads without a word
    file.write_bytes(bytes(content))
    before = load_fp32_state(list_checkpoints(output)[1])
    result = run(words)
    assert result.code == 0, result.err
    assert "passed over" in result.out
    assert "resumed after step 2" in result.out
    assert not equal(before, weights(output))
    finished = run(words)
    assert finished.code == 0
    assert "already done" in finished.out


@pytest.mark.parametrize("name", ["zero1_bf16", "zero2_bf16", "zero3_bf16"])
def test_fp32_weights_come_out_of_half_precision_checkpoints(shards, tmp_path, name):
    output = tmp_path / "run"
    words = arguments(shards, output, "train.steps=2")
    result = run(words, ranks=2, ds_config=ROOT / "ds_configs" / f"{name}.json")
    assert result.code == 0, result.err[-2000:]
    state = weights(output)
    vocab = load_manifest(shards).vocab
    expected = build_model(load_frozen(output / "config.yaml"), vocab).state_dict()
    assert {key: value.shape for key, value in state.items()} == {k: v.shape for k, v in expected.items()}
    rounded = [bool((value != value.bfloat16().float()).any()) for value in state.values()]
    assert any(rounded)  # the fp32 copies, not the bf16 weights
    moved = max(float((state[key] - expected[key]).detach().abs().max()) for key in state)
    assert 0 < moved < 0.01  # two steps from the start, each tensor under its own name
