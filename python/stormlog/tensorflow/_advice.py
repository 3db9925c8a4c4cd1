"""What to do about the memory of a TensorFlow program, by what its profile shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REMEDIATION = {
    "transient_spike": [
        "Investigate non-allocator memory consumers active during spikes "
        "(cuDNN workspace, XLA temporaries, other frameworks).",
        "Use tf.config.experimental.get_memory_info() around spike windows.",
        "Consider setting tf.config.experimental.set_memory_growth(gpu, True).",
    ],
    "persistent_drift": [
        "Look for non-TensorFlow GPU allocations accumulating over time "
        "(e.g. custom CUDA ops, third-party libraries).",
        "Monitor nvidia-smi used memory alongside TF allocator counters.",
        "If gap stabilises after warmup, it may be one-time runtime overhead.",
    ],
    "fragmentation_like": [
        "Enable memory growth with tf.config.experimental.set_memory_growth(gpu, True).",
        "Reduce allocation churn by reusing tensors or using tf.function.",
        "Consider setting a hard memory limit with tf.config.set_logical_device_configuration().",
    ],
}
_ABOVE_8_GB = (
    "Consider using tf.keras.utils.Sequence for data loading to reduce memory usage",
    "Enable mixed precision training with tf.keras.mixed_precision.Policy('mixed_float16')",
    "Use gradient checkpointing with tf.recompute_grad for large models",
)
_ABOVE_4_GB = (
    "Consider reducing batch size or using gradient accumulation",
    "Use tf.data.Dataset.prefetch() and tf.data.Dataset.cache() for efficient data loading",
    "Enable memory growth: tf.config.experimental.set_memory_growth(gpu, True)",
)
_GROWING = (
    "High memory growth detected - check for memory leaks in custom ops",
    "Use tf.function decorator to optimize computation graphs",
    "Consider using tf.data.Dataset instead of feeding numpy arrays",
)
_FRAGMENTED = (
    "High memory fragmentation detected - consider using smaller batch sizes",
    "Use tf.config.experimental.set_virtual_device_configuration() to limit GPU memory",
)
_ALWAYS = (
    "Use tf.data.Dataset.map() with num_parallel_calls=tf.data.AUTOTUNE for preprocessing",
    "Enable XLA compilation with tf.config.optimizer.set_jit(True)",
    "Consider using tf.distribute.Strategy for multi-GPU training",
    "Use tf.keras.callbacks.ReduceLROnPlateau to prevent overfitting and reduce memory over time",
)


def held_mb(snapshot: Any) -> float:
    """What counts of a snapshot on its device; of one that does not know its device, the GPU's."""
    return float(getattr(snapshot, "held_mb", snapshot.gpu_memory_mb))


def fragmentation_of(snapshots: Sequence[Any]) -> list[float]:
    """The share of the reserved memory that is not in use, of every snapshot that has any reserved."""
    return [
        1.0 - snapshot.gpu_memory_mb / snapshot.gpu_memory_reserved_mb
        for snapshot in snapshots
        if snapshot.gpu_memory_reserved_mb > 0
    ]


def suggest_optimizations(profile_result: Any) -> list[str]:
    """At most ten sentences, the most urgent first."""
    if not hasattr(profile_result, "peak_memory_mb"):
        return []
    peak = profile_result.peak_memory_mb
    sentences: list[str] = []
    sentences += _ABOVE_8_GB if peak > 8000 else ()
    sentences += _ABOVE_4_GB if peak > 4000 else ()
    sentences += _GROWING if getattr(profile_result, "memory_growth_rate", 0) > 100 else ()
    snapshots = getattr(profile_result, "snapshots", ())
    shares = fragmentation_of(snapshots) if len(snapshots) > 1 else []
    sentences += _FRAGMENTED if shares and sum(shares) / len(shares) > 0.3 else ()
    for name, profile in getattr(profile_result, "function_profiles", {}).items():
        if profile.get("peak_memory", 0) > 2000:
            sentences.append(f"Function '{name}' uses high memory - consider optimization")
        if profile.get("calls", 0) > 100 and profile.get("total_memory_used", 0) > 0:
            sentences.append(f"Function '{name}' called frequently - consider @tf.function decoration")
    return list(dict.fromkeys([*sentences, *_ALWAYS]))[:10]
