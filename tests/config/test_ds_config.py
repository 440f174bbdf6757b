"""DeepSpeed files: shipped ones work, unknown and contradictory ones are refused in one line."""

import copy
import json
from pathlib import Path

import pytest

from electra_ds.config.derived import solve_batch
from electra_ds.config.ds_config import load_ds_config, resolve_ds_config
from electra_ds.config.errors import InputError
from electra_ds.config.loading import load_config

SHIPPED = Path(__file__).resolve().parents[2] / "ds_configs"
NAMES = ("base_a100", "cpu", "large_a100", "zero1_bf16", "zero1_fp16", "zero2_bf16", "zero3_bf16")


def write(tmp_path, tree) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")
    return path


def test_the_shipped_files():
    assert sorted(path.stem for path in SHIPPED.glob("*.json")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_leave_the_recipe_alone_and_deepspeed_takes_them(name):
    from deepspeed.runtime.config import DeepSpeedConfig

    config = load_config("base_hp_dist", ["train.micro_batch=16", "optimizer.clip=0.7"])
    plan = solve_batch(config, 1)
    raw = load_ds_config(SHIPPED / f"{name}.json", config)
    assert {raw[key] for key in ("train_batch_size", "gradient_clipping")} == {"auto"}
    before = copy.deepcopy(raw)
    resolved = resolve_ds_config(raw, config, plan)
    assert raw == before
    parsed = DeepSpeedConfig(resolved)
    assert parsed.train_batch_size == 256
    assert parsed.train_micro_batch_size_per_gpu == 16
    assert parsed.gradient_accumulation_steps == 16
    assert parsed.gradient_clipping == 0.7
    assert parsed.zero_allow_untested_optimizer is True
    assert parsed.timers_config.enabled is False
    assert parsed.optimizer_name is None
    assert parsed.scheduler_name is None
    assert parsed.zero_optimization_stage >= 1
    assert parsed.bfloat16_config.enabled == ("bf16" in name or "a100" in name)
    assert parsed.float16_config.enabled == ("fp16" in name)
    if parsed.bfloat16_config.enabled:
        assert parsed.grad_accum_dtype == "fp32"
    assert "auto" not in json.dumps(resolved)


def test_auto_and_missing_keys_resolve_alike():
    config = load_config("tiny_electra")
    plan = solve_batch(config, 2)
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    autos = dict.fromkeys((*keys, "gradient_clipping", "steps_per_print"), "auto")
    assert resolve_ds_config(autos, config, plan) == resolve_ds_config({}, config, plan)
    assert resolve_ds_config({"steps_per_print": 10}, config, plan)["steps_per_print"] == 10
    assert resolve_ds_config({}, config, plan)["steps_per_print"] > config.train.steps


def test_equal_numbers_are_fine(tmp_path):
    config = load_config("tiny_electra", ["train.micro_batch=8", "optimizer.clip=1"])
    tree = {
        "train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1,
    }
    raw = load_ds_config(write(tmp_path, tree), config)
    assert resolve_ds_config(raw, config, solve_batch(config, 2))["gradient_accumulation_steps"] == 2


@pytest.mark.parametrize(
    ("key", "value", "setting"),
    [
        ("train_batch_size", 64, "train.batch=32"),
        ("train_micro_batch_size_per_gpu", 4, "train.micro_batch=8"),
        ("gradient_clipping", 0.5, "optimizer.clip=1.0"),
    ],
)
def test_a_number_that_differs_names_both_values_and_both_files(tmp_path, key, value, setting):
    config = load_config("tiny_electra", ["train.micro_batch=8", "optimizer.clip=1"])
    path = write(tmp_path, {key: value})
    with pytest.raises(InputError) as caught:
        load_ds_config(path, config, recipe="mine.yaml")
    message = str(caught.value)
    assert message.startswith(f"{path}: {key}={value} contradicts {setting} of mine.yaml")
    assert '"auto"' in message


def test_a_number_that_differs_from_the_solved_batch():
    config = load_config("tiny_electra")
    raw = {"gradient_accumulation_steps": 4}
    with pytest.raises(InputError) as caught:
        resolve_ds_config(raw, config, solve_batch(config, 2), source="ds.json")
    assert "ds.json: gradient_accumulation_steps=4 contradicts" in str(caught.value)
    assert "32 = 16 per rank × 1 accumulation × 2 ranks" in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "parts"),
    [
        ("", ["line 1, column 1", "not valid JSON"]),
        ('{\n  "bf16": {,}\n}', ["line 2, column 12", "not valid JSON"]),
        ("[1]", ["one JSON object"]),
        ("3", ["one JSON object"]),
        ('{"bf16": {}, "bf16": {}}', ["'bf16' stands twice"]),
        ('{"gradient_clipping": NaN}', ["NaN"]),
        ("[" * 100_000, ["not valid JSON"]),
        ({"optimizer": {"type": "Adam"}}, ["'optimizer'", "optimizer.lr"]),
        ({"scheduler": {}}, ["'scheduler'", "optimizer.schedule"]),
        ({"amp": {"enabled": True}}, ["'amp'", "bf16"]),
        ({"elasticity": {}}, ["'elasticity'", "train.batch"]),
        ({"data_efficiency": {}}, ["'data_efficiency'", "data.*"]),
        ({"curriculum_learning": {}}, ["'curriculum_learning'"]),
        ({"bfloat16": {"enabled": True}}, ["write it as bf16"]),
        ({"zero_optimisation": {}}, ["unknown key", "did you mean 'zero_optimization'"]),
        ({"lr": 3}, ["unknown key 'lr'"]),
        ({"zero_optimization": {"stge": 1}}, ["zero_optimization.stge", "did you mean 'stage'"]),
        ({"zero_optimization": {"stage": 4}}, ["0, 1, 2 or 3", "4"]),
        ({"zero_optimization": {"stage": True}}, ["0, 1, 2 or 3", "true"]),
        ({"zero_optimization": {"reduce_bucket_size": "auto"}}, ["reduce_bucket_size", "not filled"]),
        ({"zero_optimization": True}, ["zero_optimization must be an object"]),
        ({"bf16": {"enabled": "auto"}}, ["bf16.enabled", "not filled"]),
        ({"bf16": {"enabled": "yes"}}, ["bf16.enabled must be true or false"]),
        ({"bf16": {"enabled": True}}, ["ZeRO stage 0", "stage 1", "torch_autocast"]),
        (
            {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}, "fp16": {"enabled": True}},
            ["bf16 and fp16", "one of them"],
        ),
        (
            {"zero_optimization": {"stage": 1}, "bf16": {"bf16_master_weights_and_grads": True}},
            ["fp32 master weights"],
        ),
        ({"data_types": {"grad_accum_dtype": "bf16"}}, ["grad_accum_dtype='bf16'", "use fp32"]),
        ({"fp16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}, ["stage 0"]),
        ({"checkpoint": {"load_universal": True}}, ["checkpoint.load_universal=true", "by itself"]),
        ({"zero_allow_untested_optimizer": False}, ["remove the key"]),
        ({"train_batch_size": "32"}, ["train_batch_size must be an integer", '"auto"']),
        ({"train_batch_size": True}, ["train_batch_size must be an integer", "true"]),
        ({"gradient_clipping": None}, ["gradient_clipping must be a number", "null"]),
        ({"wall_clock_breakdown": "auto"}, ["wall_clock_breakdown must be true or false"]),
        ({"tensorboard": {"path": "x"}}, ["unknown key 'tensorboard.path'"]),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, tree, parts):
    path = write(tmp_path, tree)
    with pytest.raises(InputError) as caught:
        load_ds_config(path, load_config("tiny_electra"))
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert all(part in message for part in parts), message
    assert "\n" not in message


def test_missing_folder_and_latin_files(tmp_path):
    config = load_config("tiny_electra")
    for path, part in ((tmp_path / "none.json", "ds_configs/cpu.json"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=part):
            load_ds_config(path, config)
    (tmp_path / "latin.json").write_bytes(b'{"\xe9": 1}')
    with pytest.raises(InputError, match="not UTF-8 at byte 2"):
        load_ds_config(tmp_path / "latin.json", config)


def test_precisions_that_are_switched_off_do_not_count(tmp_path):
    tree = {"bf16": {"enabled": False}, "fp16": {"enabled": True}, "torch_autocast": {"enabled": False}}
    assert load_ds_config(write(tmp_path, tree), load_config("tiny_electra")) == tree


def test_offloading_works_with_the_optimizer_of_the_recipe():
    raw = {"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}
    for impl, forced in (("torch", False), ("deepspeed", None)):
        config = load_config("tiny_electra", [f"optimizer.impl={impl}"])
        resolved = resolve_ds_config(raw, config, solve_batch(config, 1))
        assert resolved.get("zero_force_ds_cpu_optimizer") is forced
