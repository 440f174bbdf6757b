"""What types cannot say: ranges, forms with units, and settings that contradict each other."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from electra_ds.config.errors import InputError, nearest
from electra_ds.config.schema import Config
from electra_ds.config.shapes import generator_shape
from electra_ds.config.typed import show
from electra_ds.config.units import parse_duration, parse_minutes

OBJECTIVES = ("mlm", "electra", "hp_loss", "hp_dist")
MIN_SEQ_LEN = 8  # [CLS], two sentences of a token or two, two [SEP]
MAX_SEED = 2**63 - 1  # the largest seed that torch takes on every device


class _Checker:
    """Reads settings by dotted key and turns a failed condition into one line naming its source."""

    def __init__(self, config: Config, sources: Mapping[str, str]) -> None:
        self._config = config
        self._sources = sources

    def get(self, key: str) -> Any:
        value: Any = self._config
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def refuse(self, key: str, remedy: str) -> None:
        source = self._sources.get(key, "default")
        raise InputError(f"{source}: {key}={show(self.get(key))} {remedy}")

    def refuse_pair(self, key: str, other: str, remedy: str) -> None:
        """Blame the setting that the user is likelier to have typed last."""
        if self._sources.get(other) == "command line" != self._sources.get(key):
            key, other = other, key
        self.refuse(key, f"does not go with {other}={show(self.get(other))}: {remedy}")

    def at_least(self, least: int, keys: Iterable[str]) -> None:
        for key in keys:
            value = self.get(key)
            if value is not None and not isinstance(value, str) and value < least:
                self.refuse(key, f"is too small: use {least} or more")

    def above_zero(self, keys: Iterable[str]) -> None:
        for key in keys:
            if self.get(key) <= 0:
                self.refuse(key, "must be above 0: use a positive number")

    def share(self, key: str, inside: Callable[[float], bool], interval: str) -> None:
        if not inside(self.get(key)):
            self.refuse(key, f"is out of range: use a number in {interval}")


def validate(config: Config, sources: Mapping[str, str]) -> None:
    """Raise :class:`InputError` for the first setting that cannot work.

    ``sources`` gives the file (or ``command line``) that set a key; keys not in it are defaults.
    """
    check = _Checker(config, sources)
    _check_ranges(check)
    _check_objective(check)
    _check_model(check)
    _check_units(check)


def _check_ranges(check: _Checker) -> None:
    check.at_least(0, ("seed", "data.workers", "optimizer.warmup_steps", "objective.hp.start_step"))
    check.at_least(0, ("train.eval_every", "train.keep_every", "optimizer.weight_decay", "optimizer.clip"))
    check.at_least(0, ("objective.mlm_weight", "objective.rtd_weight", "objective.hp.weight"))
    check.at_least(0, ("objective.focal_gamma",))
    check.at_least(MIN_SEQ_LEN, ("data.seq_len",))
    check.at_least(1, ("data.lanes", "train.steps", "train.batch", "train.micro_batch", "train.log_every"))
    check.at_least(1, ("train.eval_rows", "train.checkpoint_every", "train.keep", "train.stop_after"))
    check.at_least(1, ("train.max_skipped", "model.layers", "model.hidden", "model.heads", "model.ffn"))
    check.at_least(1, ("model.embedding", "model.max_positions"))
    check.above_zero(("optimizer.lr", "optimizer.eps", "objective.temperature", "train.dist_timeout"))
    check.above_zero(("model.init_std", "model.generator.width", "model.generator.depth"))
    check.share("data.mask_prob", lambda x: 0 < x < 1, "(0, 1), as 0.15")
    check.share("model.dropout", lambda x: 0 <= x < 1, "[0, 1), as 0.1")
    check.share("optimizer.decay_share", lambda x: 0 < x <= 1, "(0, 1], as 0.1")
    if not all(0 <= beta < 1 for beta in check.get("optimizer.betas")):
        check.refuse("optimizer.betas", "is out of range: use two numbers in [0, 1), as [0.9, 0.999]")
    if check.get("seed") > MAX_SEED:
        check.refuse("seed", f"is too large: use at most {MAX_SEED}")


def _check_objective(check: _Checker) -> None:
    name = check.get("objective.name")
    if name not in OBJECTIVES:
        check.refuse(
            "objective.name", f"is unknown{nearest(name, OBJECTIVES)}: use one of {', '.join(OBJECTIVES)}"
        )
    if check.get("objective.hp.weight_clip") <= 1:
        # p_G / q is 1 on average under q: a bound of 1 cuts half of it off and biases the estimate.
        check.refuse("objective.hp.weight_clip", "biases the hardness estimate: use a bound above 1, as 10")
    if check.get("objective.mlm_weight") == 0 and name == "mlm":
        check.refuse("objective.mlm_weight", "leaves objective.name=mlm nothing to train: use 1")
    if check.get("objective.mlm_weight") == 0 == check.get("objective.rtd_weight"):
        check.refuse_pair(
            "objective.mlm_weight", "objective.rtd_weight", "nothing is trained, raise one of them"
        )


def _check_model(check: _Checker) -> None:
    if check.get("model.hidden") % check.get("model.heads"):
        check.refuse_pair("model.heads", "model.hidden", "the heads must divide the hidden size")
    generator = generator_shape(check._config)
    if generator.hidden % generator.heads:
        check.refuse(
            "model.generator.width",
            f"makes a generator of hidden size {generator.hidden} with {generator.heads} heads, which do not "
            f"divide it: use a width that gives whole heads of {check.get('model.hidden')} / "
            f"{check.get('model.heads')}, as {show(1 / check.get('model.heads'))}",
        )
    if check.get("model.positions") != "relative" and check.get("data.seq_len") > check.get(
        "model.max_positions"
    ):
        check.refuse_pair(
            "data.seq_len",
            "model.max_positions",
            "the position table is too short for the rows, raise model.max_positions, lower data.seq_len "
            "or use model.positions=relative",
        )


def _check_units(check: _Checker) -> None:
    duration = check.get("train.duration")
    if duration is not None:
        try:
            parse_duration(duration)
        except ValueError:
            check.refuse(
                "train.duration",
                "is not a length: use batches, epochs or tokens, as 1000000ba, 40ep or 30Gtok (k, M, G, T)",
            )
    every = check.get("train.checkpoint_every")
    if isinstance(every, str):
        try:
            parse_minutes(every)
        except ValueError:
            check.refuse(
                "train.checkpoint_every", "is not an interval: use steps or minutes, as 1000 or 30min"
            )
