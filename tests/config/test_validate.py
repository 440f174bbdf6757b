"""Ranges and contradictions: one line with source, key, value and remedy."""

import pytest

from electra_ds.config.errors import InputError
from electra_ds.config.loading import load_config


@pytest.mark.parametrize(
    ("overrides", "blamed", "remedy"),
    [
        (["seed=-1"], "seed=-1", "0 or more"),
        ([f"seed={2**63}"], f"seed={2**63}", "at most"),
        (["data.seq_len=7"], "data.seq_len=7", "8 or more"),
        (["data.lanes=0"], "data.lanes=0", "1 or more"),
        (["data.workers=-1"], "data.workers=-1", "0 or more"),
        (["data.mask_prob=0"], "data.mask_prob=0.0", "(0, 1)"),
        (["data.mask_prob=1"], "data.mask_prob=1.0", "(0, 1)"),
        (["model.layers=0"], "model.layers=0", "1 or more"),
        (["model.heads=0"], "model.heads=0", "1 or more"),
        (["model.embedding=0"], "model.embedding=0", "1 or more"),
        (["model.dropout=1"], "model.dropout=1.0", "[0, 1)"),
        (["model.init_std=0"], "model.init_std=0.0", "positive"),
        (["model.heads=3"], "model.heads=3", "model.hidden=128"),
        (["model.hidden=130", "model.heads=4"], "model.heads=4", "divide the hidden size"),
        (["model.generator.width=0"], "model.generator.width=0.0", "positive"),
        (["model.generator.depth=-1"], "model.generator.depth=-1.0", "positive"),
        (["model.heads=16", "model.generator.width=0.3"], "model.generator.width=0.3", "0.0625"),
        (["data.seq_len=129"], "data.seq_len=129", "model.max_positions=128"),
        (["model.max_positions=32"], "model.max_positions=32", "data.seq_len=64"),
        (["objective.name=hp"], "objective.name='hp'", "one of mlm, electra, hp_loss, hp_dist"),
        (["objective.name=elektra"], "objective.name='elektra'", "did you mean 'electra'"),
        (["objective.rtd_weight=-1"], "objective.rtd_weight=-1.0", "0 or more"),
        (["objective.mlm_weight=0", "objective.rtd_weight=0"], "objective.mlm_weight=0.0", "raise one"),
        (["objective.name=mlm", "objective.mlm_weight=0"], "objective.mlm_weight=0.0", "use 1"),
        (["objective.focal_gamma=-0.1"], "objective.focal_gamma=-0.1", "0 or more"),
        (["objective.temperature=0"], "objective.temperature=0.0", "positive"),
        (["objective.hp.weight_clip=1"], "objective.hp.weight_clip=1.0", "above 1"),
        (["objective.hp.start_step=-1"], "objective.hp.start_step=-1", "0 or more"),
        (["objective.hp.weight=-1"], "objective.hp.weight=-1.0", "0 or more"),
        (["optimizer.lr=0"], "optimizer.lr=0.0", "positive"),
        (["optimizer.warmup_steps=-1"], "optimizer.warmup_steps=-1", "0 or more"),
        (["optimizer.decay_share=0"], "optimizer.decay_share=0.0", "(0, 1]"),
        (["optimizer.decay_share=1.1"], "optimizer.decay_share=1.1", "(0, 1]"),
        (["optimizer.betas=[0.9, 1]"], "optimizer.betas=[0.9, 1.0]", "[0, 1)"),
        (["optimizer.betas=[-0.1, 0.9]"], "optimizer.betas=[-0.1, 0.9]", "[0, 1)"),
        (["optimizer.eps=0"], "optimizer.eps=0.0", "positive"),
        (["optimizer.clip=-1"], "optimizer.clip=-1.0", "0 or more"),
        (["optimizer.weight_decay=-0.1"], "optimizer.weight_decay=-0.1", "0 or more"),
        (["train.steps=0"], "train.steps=0", "1 or more"),
        (["train.batch=0"], "train.batch=0", "1 or more"),
        (["train.micro_batch=0"], "train.micro_batch=0", "1 or more"),
        (["train.log_every=0"], "train.log_every=0", "1 or more"),
        (["train.eval_every=-1"], "train.eval_every=-1", "0 or more"),
        (["train.eval_rows=0"], "train.eval_rows=0", "1 or more"),
        (["train.checkpoint_every=0"], "train.checkpoint_every=0", "1 or more"),
        (["train.checkpoint_every=30m"], "train.checkpoint_every='30m'", "30min"),
        (["train.checkpoint_every=0min"], "train.checkpoint_every='0min'", "30min"),
        (["train.checkpoint_every='1000'"], "train.checkpoint_every='1000'", "1000 or 30min"),
        (["train.keep=0"], "train.keep=0", "1 or more"),
        (["train.keep_every=-1"], "train.keep_every=-1", "0 or more"),
        (["train.stop_after=0"], "train.stop_after=0", "1 or more"),
        (["train.max_skipped=0"], "train.max_skipped=0", "1 or more"),
        (["train.dist_timeout=0"], "train.dist_timeout=0.0", "positive"),
        (["train.duration=40"], "train.duration", "text or null"),
        (["train.duration=40epochs"], "train.duration='40epochs'", "40ep"),
        (["train.duration=0ep"], "train.duration='0ep'", "40ep"),
        (["train.duration=1.5ba"], "train.duration='1.5ba'", "1000000ba"),
        (["train.duration=-3ep"], "train.duration='-3ep'", "40ep"),
    ],
)
def test_refused_in_one_line(overrides, blamed, remedy):
    with pytest.raises(InputError) as caught:
        load_config("tiny_hp_dist", overrides)
    message = str(caught.value)
    assert message.startswith("command line: " + blamed), message
    assert remedy in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer.warmup_steps=100", "train.steps=20"],  # a short trial of a long recipe
        ["train.stop_after=7", "train.steps=5"],
        ["model.positions=relative", "data.seq_len=4096"],  # no table that could be too short
        ["data.seq_len=128"],
        ["data.seq_len=8"],
        ["optimizer.clip=0", "optimizer.weight_decay=0", "optimizer.decay_share=1"],
        ["optimizer.betas=[0, 0.5]"],
        ["train.duration=0.5ep", "train.checkpoint_every=0.5min"],
        ["train.duration=30Gtok"],
        ["objective.rtd_weight=0"],
        ["data.mask_prob=0.999"],
        ["model.generator.width=2"],
    ],
)
def test_taken(overrides):
    load_config("tiny_hp_dist", overrides)


def test_a_pair_is_blamed_on_the_one_that_was_typed(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("extends: tiny_mlm\ndata: {seq_len: 512}\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"r\.yaml: data\.seq_len=512 does not go with model\.max_positions=128"
    ):
        load_config(path)


def test_a_default_is_named_as_one(tmp_path):
    path = tmp_path / "r.yaml"
    # A quarter of 26 x 10 is 65 wide, and of 26 heads 6: the width that does not fit is nobody's choice.
    path.write_text("model: {hidden: 260, heads: 26}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^default: model\.generator\.width=0\.25 makes"):
        load_config(path)
