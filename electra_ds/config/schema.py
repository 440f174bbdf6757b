"""The configuration tree: frozen dataclasses, one per subject.

Defaults are those of the published ELECTRA (Clark et al. 2020) where the paper fixes them; sizes and
lengths that differ between model sizes live in ``electra_ds/recipes/*.yaml``. A setting exists only
if it changes something.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class DataConfig:
    """How shards become rows of tokens. None of it is stored in the shards."""

    seq_len: int = 128  # L, tokens in a row
    lanes: int = 64  # the stream is cut into this many independent lanes; fixes the order
    pack: bool = True  # several examples in one row, attention kept inside each
    examples: Literal["reference", "full_sentences"] = "reference"
    mask_prob: float = 0.15
    mask_unit: Literal["token", "whole_word", "ngram"] = "token"
    workers: int = 1  # loader processes per rank; 0 reads in the training process


@dataclass(frozen=True)
class GeneratorConfig:
    """Generator size as multiples of the discriminator's; results are rounded."""

    width: float = 0.25  # hidden, feed-forward and heads
    depth: float = 1.0  # layers


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the discriminator (for the objective ``mlm``: of the one encoder there is)."""

    arch: Literal["electra"] = "electra"
    layers: int = 12
    hidden: int = 256
    heads: int = 4
    ffn: int = 1024
    embedding: int = 128
    max_positions: int = 512
    dropout: float = 0.1  # hidden, attention and embedding dropout; 0 switches every dropout off
    init_std: float = 0.02  # truncated normal
    positions: Literal["absolute", "relative", "both"] = "absolute"
    relative_init: Literal["zero", "local"] = "zero"
    embedding_sharing: Literal["shared", "none", "gdes"] = "shared"
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)


@dataclass(frozen=True)
class HardnessConfig:
    """Hardness prediction (Hao et al. 2021); used by ``hp_loss`` and ``hp_dist``."""

    weight: float = 1.0  # lambda_S
    normalizer: Literal["running", "one"] = "running"  # Z of HP-Dist
    weight_clip: float = 10.0  # upper bound of p_G / q
    start_step: int = 0  # draw from p_G before this step, from p_S after it
    head: Literal["residual", "copy", "independent"] = "residual"  # HP-Dist's sampling head
    detach_encoder: bool = False  # keep L_S out of the generator's encoder and the word table


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is trained, and with which weights."""

    name: str = "electra"
    mlm_weight: float = 1.0
    rtd_weight: float = 50.0  # lambda_D
    focal_gamma: float = 0.0
    temperature: float = 1.0  # of the generator's sampling distribution
    correct_is: Literal["original", "replaced"] = "original"
    disallow_correct: bool = False
    importance_weighting: bool = False
    sample_with_dropout: bool = True  # False: a second generator pass without dropout to sample from
    hp: HardnessConfig = field(default_factory=HardnessConfig)


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW, its schedule and gradient clipping."""

    lr: float = 5e-4
    schedule: Literal["linear", "wsd", "constant"] = "linear"
    warmup_steps: int = 10_000
    decay_share: float = 0.1  # wsd: the share of the run over which the rate falls to zero
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    bias_correction: bool = False
    clip: float = 1.0  # global gradient norm; 0 switches clipping off
    impl: Literal["torch", "deepspeed"] = "torch"  # deepspeed compiles its Adam at first use


@dataclass(frozen=True)
class TrainConfig:
    """Length of the run, batch, and how often things happen."""

    steps: int = 1_000_000
    duration: str | None = None  # "1000000ba", "40ep" or "30Gtok"; overrides steps
    batch: int = 128  # rows of the global batch
    micro_batch: int | Literal["auto"] = "auto"  # rows a rank computes at once
    log_every: int = 100
    eval_every: int = 0  # 0: only at the end
    eval_rows: int = 2048  # held-out rows used for eval/*
    checkpoint_every: int | str = 1000  # steps, or minutes as in "30min"
    keep: int = 3  # newest checkpoints kept
    keep_every: int = 0  # checkpoints at multiples of this many steps are never deleted
    stop_after: int | None = None  # save and leave with exit code 75 after this step
    max_skipped: int = 20  # non-finite steps in a row before the run stops
    dist_timeout: float = 600.0  # seconds a rank may be waited for


@dataclass(frozen=True)
class Config:
    """A whole run."""

    seed: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
