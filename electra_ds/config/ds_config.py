"""The DeepSpeed JSON file: system settings only, checked before DeepSpeed sees it.

What both files could say (batch sizes, clipping) is ``"auto"`` here and filled from the recipe; the
optimizer and its schedule belong to the recipe alone. Key names are those of DeepSpeed 0.17 and later.
"""

import copy
import json
from pathlib import Path
from typing import Any, NoReturn

from electra_ds.config.derived import BatchPlan
from electra_ds.config.ds_keys import (
    AUTO_KEYS,
    KNOWN_KEYS,
    MEANS_TO_ASK,
    REFUSED,
    REFUSED_NESTED,
    SECTION_KEYS,
)
from electra_ds.config.errors import InputError, nearest
from electra_ds.config.schema import Config
from electra_ds.config.typed import show

# DeepSpeed's own progress line says nothing that the run's log line does not.
NEVER_PRINT = 10**12


def load_ds_config(path: Path, config: Config, recipe: str = "the recipe") -> dict[str, Any]:
    """Read a DeepSpeed JSON file and refuse what is unknown or contradicts ``config``.

    ``"auto"`` is left in place. ``recipe`` is how messages call the other file. Raises
    :class:`InputError` with one line that names the file, the key, the values and the remedy.
    """
    raw = _read_json(path)
    for key, value in raw.items():
        _check_top_level(path, key, value)
    _check_nested(path, raw)
    _check_precision(path, raw)
    expected: dict[str, tuple[str, object]] = {"train_batch_size": ("train.batch", config.train.batch)}
    expected["gradient_clipping"] = ("optimizer.clip", config.optimizer.clip)
    if config.train.micro_batch != "auto":
        expected["train_micro_batch_size_per_gpu"] = ("train.micro_batch", config.train.micro_batch)
    for key, (setting, value) in expected.items():
        found = raw.get(key, "auto")
        if found != "auto" and found != value:
            raise InputError(
                f"{path}: {key}={show(found)} contradicts {setting}={show(value)} of {recipe}: write "
                f'"auto" in {path} and set {setting} in the recipe'
            )
    return raw


def resolve_ds_config(
    raw: dict[str, Any], config: Config, plan: BatchPlan, source: str = "the DeepSpeed config"
) -> dict[str, Any]:
    """Return a copy of ``raw`` with every ``"auto"`` filled, as DeepSpeed takes it.

    Raises :class:`InputError` where a number in the file differs from the solved batch; ``source`` is how
    the message calls the file.
    """
    resolved = copy.deepcopy(raw)
    solved = {
        "train_batch_size": plan.batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
    }
    for key, value in solved.items():
        found = raw.get(key, "auto")
        if found not in ("auto", value):
            raise InputError(
                f"{source}: {key}={show(found)} contradicts the batch {plan.equation}, which needs {value}: "
                f'write "auto" there, and set train.batch and train.micro_batch in the recipe'
            )
        resolved[key] = value
    resolved["gradient_clipping"] = config.optimizer.clip
    if resolved.get("steps_per_print", "auto") == "auto":
        resolved["steps_per_print"] = NEVER_PRINT
    resolved["zero_allow_untested_optimizer"] = True  # the optimizer is ours, and tested under ZeRO
    if config.optimizer.impl == "torch":
        resolved.setdefault("zero_force_ds_cpu_optimizer", False)  # else offloading would compile one
    # DeepSpeed's throughput timer waits for the device at each micro-step; the loop has its own clock.
    resolved.setdefault("timers", {"throughput": {"enabled": False}})
    return resolved


def _read_json(path: Path) -> dict[str, Any]:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key, value in pairs:
            if key in tree:
                raise InputError(f"{path}: the key {key!r} stands twice in one object: remove one of them")
            tree[key] = value
        return tree

    def no_constant(text: str) -> NoReturn:
        raise InputError(f"{path}: {text} is not a JSON number: write a finite one")

    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}: save the file as UTF-8") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): give a DeepSpeed JSON file, as ds_configs/cpu.json"
        ) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{path}, {where}: not valid JSON: {error.msg}: correct it there") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: must hold one JSON object {{...}}, not {show(raw)}")
    return raw


def _check_top_level(path: Path, key: str, value: object) -> None:
    if key in REFUSED:
        raise InputError(f"{path}: {key!r} does not belong here: {REFUSED[key]}")
    if key not in KNOWN_KEYS:
        raise InputError(f"{path}: unknown key {key!r}{nearest(key, KNOWN_KEYS)}: {MEANS_TO_ASK}")
    wanted = KNOWN_KEYS[key]
    fits = isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool)
    if key in AUTO_KEYS and value == "auto":
        fits = True
    if not fits:
        names = {dict: "an object {...}", bool: "true or false", str: "text", int: "an integer"}
        also = ' or "auto"' if key in AUTO_KEYS else ""
        raise InputError(f"{path}: {key} must be {names.get(wanted, 'a number')}{also}, not {show(value)}")
    if key == "zero_allow_untested_optimizer" and value is False:
        raise InputError(f"{path}: {key}=false refuses the optimizer of this program: remove the key")


def _check_nested(path: Path, raw: dict[str, Any]) -> None:
    for section, known in SECTION_KEYS.items():
        for key, value in raw.get(section, {}).items():
            name = f"{section}.{key}"
            if name in REFUSED_NESTED and value not in (False, None):
                raise InputError(f"{path}: {name}={show(value)} cannot be used: {REFUSED_NESTED[name]}")
            if key not in known and name not in REFUSED_NESTED:
                raise InputError(f"{path}: unknown key {name!r}{nearest(key, known)}: {MEANS_TO_ASK}")
            if value == "auto" and name != "data_types.keep_in_fp32_modules":
                raise InputError(
                    f'{path}: {name}="auto" is not filled by this program: give a value or remove it'
                )


def _enabled(path: Path, raw: dict[str, Any], section: str) -> bool:
    value = raw.get(section, {}).get("enabled", False)
    if not isinstance(value, bool):
        raise InputError(f"{path}: {section}.enabled must be true or false, not {show(value)}")
    return value


def _check_precision(path: Path, raw: dict[str, Any]) -> None:
    precisions = [name for name in ("bf16", "fp16", "torch_autocast") if _enabled(path, raw, name)]
    if len(precisions) > 1:
        raise InputError(f"{path}: {' and '.join(precisions)} are all enabled: leave one of them enabled")
    stage = raw.get("zero_optimization", {}).get("stage", 0)
    if isinstance(stage, bool) or not isinstance(stage, int) or stage not in range(4):
        raise InputError(f"{path}: zero_optimization.stage must be 0, 1, 2 or 3, not {show(stage)}")
    if precisions == ["bf16"] and stage == 0:
        # DeepSpeed's stage-0 bf16 optimizer steps once on zero gradients, so that Adam starts at step 1.
        raise InputError(
            f"{path}: bf16 with ZeRO stage 0 does not train like fp32 (its first updates are wrong): use "
            "zero_optimization.stage 1, or torch_autocast with dtype bfloat16 instead of bf16"
        )
    dtype = raw.get("data_types", {}).get("grad_accum_dtype")
    if dtype not in (None, "fp32") and not (precisions and dtype == precisions[0]):
        raise InputError(
            f"{path}: data_types.grad_accum_dtype={show(dtype)} does not fit the precision "
            f"{precisions[0] if precisions else 'fp32'}: use fp32"
        )
    if dtype == "fp32" and stage == 0 and precisions == ["fp16"]:
        raise InputError(
            f"{path}: data_types.grad_accum_dtype=fp32 with fp16 does not work at ZeRO stage 0: use "
            "zero_optimization.stage 1"
        )
