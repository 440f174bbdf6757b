"""What a resumed run may change."""

import pytest

from electra_ds.config.loading import load_config
from electra_ds.config.resume import refused_changes
from electra_ds.config.typed import leaf_types

OLD = ["train.duration=10ep", "train.steps=100"]
# For each key a value that differs from tiny_hp_dist.
OTHER = {
    "seed": "2",
    "data.seq_len": "32",
    "data.lanes": "8",
    "data.pack": "false",
    "data.examples": "full_sentences",
    "data.mask_prob": "0.2",
    "data.mask_unit": "ngram",
    "data.workers": "3",
    "model.layers": "2",
    "model.hidden": "64",
    "model.heads": "4",
    "model.ffn": "64",
    "model.embedding": "64",
    "model.max_positions": "256",
    "model.dropout": "0.1",
    "model.init_std": "0.02",
    "model.positions": "relative",
    "model.relative_init": "zero",
    "model.embedding_sharing": "gdes",
    "model.generator.width": "1",
    "model.generator.depth": "1/2",
    "objective.name": "hp_loss",
    "objective.mlm_weight": "2",
    "objective.rtd_weight": "2",
    "objective.focal_gamma": "2",
    "objective.temperature": "2",
    "objective.correct_is": "replaced",
    "objective.disallow_correct": "true",
    "objective.importance_weighting": "true",
    "objective.sample_with_dropout": "false",
    "objective.hp.weight": "2",
    "objective.hp.normalizer": "one",
    "objective.hp.weight_clip": "2",
    "objective.hp.start_step": "2",
    "objective.hp.head": "copy",
    "objective.hp.detach_encoder": "true",
    "optimizer.lr": "2",
    "optimizer.schedule": "wsd",
    "optimizer.warmup_steps": "2",
    "optimizer.decay_share": "0.2",
    "optimizer.weight_decay": "2",
    "optimizer.betas": "[0.5, 0.5]",
    "optimizer.eps": "2",
    "optimizer.bias_correction": "false",
    "optimizer.clip": "2",
    "optimizer.impl": "deepspeed",
    "train.steps": "200",
    "train.duration": "20ep",
    "train.batch": "64",
    "train.micro_batch": "4",
    "train.log_every": "7",
    "train.eval_every": "7",
    "train.eval_rows": "7",
    "train.checkpoint_every": "7min",
    "train.keep": "7",
    "train.keep_every": "7",
    "train.stop_after": "7",
    "train.max_skipped": "7",
    "train.dist_timeout": "7",
}
FREE = {
    "data.workers",
    "train.steps",
    "train.duration",
    "train.micro_batch",
    "train.log_every",
    "train.eval_every",
    "train.eval_rows",
    "train.checkpoint_every",
    "train.keep",
    "train.keep_every",
    "train.stop_after",
    "train.max_skipped",
    "train.dist_timeout",
}


@pytest.mark.parametrize("key", [key for key in leaf_types() if key != "model.arch"])
def test_each_key(key):
    old = load_config("tiny_hp_dist", OLD)
    new = load_config("tiny_hp_dist", [*OLD, f"{key}={OTHER[key]}"])
    refused = refused_changes(old, new)
    assert len(refused) == (0 if key in FREE else 1)
    assert all(line.startswith(f"{key}: ") and " -> " in line for line in refused)


def test_nothing_changed():
    assert refused_changes(load_config("tiny_mlm"), load_config("tiny_mlm")) == []


def test_lengths_only_grow():
    old = load_config("tiny_mlm", OLD)
    assert refused_changes(old, load_config("tiny_mlm", [*OLD, "train.steps=99"])) == [
        "train.steps: 100 -> 99 (may only grow)"
    ]
    assert refused_changes(old, load_config("tiny_mlm", [*OLD, "train.duration=9.9ep"])) == [
        "train.duration: '10ep' -> '9.9ep' (may only grow)"
    ]
    assert refused_changes(old, load_config("tiny_mlm", [*OLD, "train.duration=1Mtok"])) == []


def test_several_changes_are_all_named():
    new = load_config("tiny_mlm", ["seed=2", "optimizer.lr=5e-4", "model.positions=absolute"])
    assert refused_changes(load_config("tiny_mlm"), new) == [
        "seed: 1 -> 2",
        "model.positions: 'both' -> 'absolute'",
        "optimizer.lr: 0.001 -> 0.0005",
    ]
