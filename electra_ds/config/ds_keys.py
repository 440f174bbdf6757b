"""Keys of a DeepSpeed JSON file: what may stand in it, what may not, and why."""

from typing import Any

MEANS_TO_ASK = "only system keys of DeepSpeed may stand here, settings of the run belong in the recipe"

MONITOR_SECTIONS = ("tensorboard", "csv_monitor", "wandb")

# Top-level keys and their types; number means int or float.
NUMBER = (int, float)
KNOWN_KEYS: dict[str, Any] = {
    "train_batch_size": int,
    "train_micro_batch_size_per_gpu": int,
    "gradient_accumulation_steps": int,
    "gradient_clipping": NUMBER,
    "steps_per_print": int,
    "zero_optimization": dict,
    "zero_allow_untested_optimizer": bool,
    "zero_force_ds_cpu_optimizer": bool,
    "bf16": dict,
    "fp16": dict,
    "torch_autocast": dict,
    "data_types": dict,
    "communication_data_type": str,
    "prescale_gradients": bool,
    "gradient_predivide_factor": NUMBER,
    "disable_allgather": bool,
    "disable_python_gc": bool,
    "dump_state": bool,
    "wall_clock_breakdown": bool,
    "memory_breakdown": bool,
    "activation_checkpointing": dict,
    "flops_profiler": dict,
    "comms_logger": dict,
    "timers": dict,
    "checkpoint": dict,
    "compile": dict,
    "aio": dict,
    **dict.fromkeys(MONITOR_SECTIONS, dict),
}

AUTO_KEYS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "steps_per_print",
)

_RECIPE_DATA = "the data stream of this program orders and cuts the data; set data.* in the recipe"
_GONE = "DeepSpeed removed it; remove the key"
REFUSED: dict[str, str] = {
    "optimizer": "set optimizer.lr, optimizer.betas, optimizer.weight_decay, ... in the recipe",
    "scheduler": "set optimizer.schedule and optimizer.warmup_steps in the recipe",
    "amp": "DeepSpeed removed Apex; use bf16, fp16 or torch_autocast",
    "elasticity": "a run resumes on any number of ranks that divides train.batch; remove the key",
    "data_efficiency": _RECIPE_DATA,
    "curriculum_learning": _RECIPE_DATA,
    "dataloader_drop_last": _RECIPE_DATA,
    "progressive_layer_drop": _GONE,
    "sparse_attention": _GONE,
    "sparse_gradients": _GONE,
    "eigenvalue": _GONE,
    "quantize_training": _GONE,
    "compression_training": _GONE,
    "nebula": _GONE,
    "graph_harvesting": _GONE,
    "autotuning": "it starts runs of its own; choose train.micro_batch in the recipe",
    "pipeline": "the model is not cut into pipeline stages; use zero_optimization",
    "tensor_parallel": "the model is not cut over ranks; use zero_optimization",
    "hybrid_engine": "it is for generation in reinforcement learning; remove the key",
    "gradient_allreduce_op": "the loss counts on DeepSpeed's mean over ranks; remove the key",
    "managed_gradient_accumulation": "the loop counts micro-steps itself; remove the key",
    "vocabulary_size": "the vocabulary comes from the shards' manifest; remove the key",
    "bfloat16": "write it as bf16",
}

# Values other than false and null of these are refused.
REFUSED_NESTED: dict[str, str] = {
    "bf16.bf16_master_weights_and_grads": "without fp32 master weights small updates are lost; remove it",
    "bf16.bf16_optimizer_states": "optimizer moments in bf16 change the training; remove it",
    "fp16.fp16_master_weights_and_grads": "without fp32 master weights small updates are lost; remove it",
    "fp16.auto_cast": "inputs are token ids; remove it",
    "checkpoint.load_universal": "resuming decides by itself how a checkpoint is loaded; remove it",
    "checkpoint.use_node_local_storage": "a checkpoint must be whole in the run folder; remove it",
}

# Keys inside the sections in which a typing error would change the training. The others are passed on.
SECTION_KEYS: dict[str, tuple[str, ...]] = {
    "bf16": ("enabled", "immediate_grad_update", "check_grad_overflow"),
    "fp16": (
        "enabled",
        "loss_scale",
        "initial_scale_power",
        "loss_scale_window",
        "hysteresis",
        "consecutive_hysteresis",
        "min_loss_scale",
    ),
    "torch_autocast": ("enabled", "dtype", "lower_precision_safe_modules"),
    "data_types": ("grad_accum_dtype", "param_dtype", "buffer_dtype", "keep_in_fp32_modules"),
    "checkpoint": ("tag_validation", "parallel_write", "checkpoint_serialization", "writer"),
    "tensorboard": ("enabled", "output_path", "job_name"),
    "csv_monitor": ("enabled", "output_path", "job_name"),
    "wandb": ("enabled", "group", "team", "project"),
    "zero_optimization": (
        "stage",
        "contiguous_gradients",
        "reduce_scatter",
        "reduce_bucket_size",
        "use_multi_rank_bucket_allreduce",
        "allgather_partitions",
        "allgather_bucket_size",
        "overlap_comm",
        "load_from_fp32_weights",
        "offload_param",
        "offload_optimizer",
        "sub_group_size",
        "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold",
        "stage3_model_persistence_threshold",
        "stage3_max_live_parameters",
        "stage3_max_reuse_distance",
        "stage3_gather_16bit_weights_on_model_save",
        "stage3_module_granularity_threshold",
        "stage3_use_all_reduce_for_fetch_params",
        "stage3_allgather_sequential",
        "ignore_unused_parameters",
        "round_robin_gradients",
        "zero_hpz_partition_size",
        "zero_quantized_weights",
        "zero_quantized_nontrainable_weights",
        "zero_quantized_gradients",
        "memory_efficient_linear",
        "pipeline_loading_checkpoint",
        "override_module_apply",
        "log_trace_cache_warnings",
        "enable_sanity_checks",
        "leaf_module",
    ),
}
