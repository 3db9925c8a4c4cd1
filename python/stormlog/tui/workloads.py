"""Small sample workloads under a profiler, and their results as text.

The profiler and the framework are handed in, so that nothing is imported here. Texts are 0.4.3's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from stormlog.formatting import format_bytes
from stormlog.tensorflow._advice import held_mb

__all__ = [
    "format_cpu_summary",
    "format_pytorch_summary",
    "format_tensorflow_results",
    "run_cpu_sample_workload",
    "run_pytorch_sample_workload",
    "run_tensorflow_sample_workload",
]


def run_pytorch_sample_workload(profiler_cls: Any, torch_module: Any) -> dict[str, Any]:
    """Multiplies a matrix on the GPU; the summary is of this run alone, also under a shared profiler."""

    def workload() -> Any:
        matrix = torch_module.randn((3072, 3072), device="cuda")
        return torch_module.matmul(matrix, matrix).sum()

    profiler = profiler_cls()
    profiler.profile_function(workload)
    result = profiler.results[-1]
    return {
        "total_functions_profiled": 1,
        "total_function_calls": 1,
        "peak_memory_usage": result.peak_memory_usage(),
        "memory_change_from_baseline": result.memory_diff(),
    }


def run_tensorflow_sample_workload(profiler_cls: Any, tf_module: Any) -> Any:
    """Multiplies a matrix; duration, peak, average and the two snapshots of this run alone."""
    profiler = profiler_cls()
    with profiler.profile_context("tf_sample"):
        tensor = tf_module.random.normal((2048, 2048))
        tf_module.reduce_sum(tf_module.matmul(tensor, tensor))
    before, after = profiler.function_profiles["tf_sample"]["snapshots"][-2:]
    memory = (held_mb(before), held_mb(after))
    return SimpleNamespace(
        duration=after.timestamp - before.timestamp,
        peak_memory_mb=max(memory),
        average_memory_mb=sum(memory) / 2,
        snapshots=[before, after],
    )


def run_cpu_sample_workload(profiler_cls: Any) -> dict[str, Any]:
    """Sums a list of half a million numbers; the profiler's summary."""

    def workload() -> int:
        return sum([*range(500_000)])

    profiler = profiler_cls()
    profiler.profile_function(workload)
    return cast("dict[str, Any]", profiler.get_summary())


def format_pytorch_summary(summary: dict[str, Any]) -> str:
    """Functions, calls, peak and change, a line each."""
    return "\n".join(
        [
            f"Functions profiled: {summary.get('total_functions_profiled', 'N/A')}",
            f"Total calls: {summary.get('total_function_calls', 'N/A')}",
            f"Peak memory: {format_bytes(summary.get('peak_memory_usage', 0))}",
            _change(summary),
        ]
    )


def format_tensorflow_results(results: Any) -> str:
    """Duration, peak, average and number of snapshots, a line each."""

    def known(name: str, default: Any) -> Any:
        value = getattr(results, name, default)
        return default if value is None else value

    return "\n".join(
        [
            f"Duration: {known('duration', 0.0):.2f}s",
            f"Peak memory: {known('peak_memory_mb', 0.0):.2f} MB",
            f"Average memory: {known('average_memory_mb', 0.0):.2f} MB",
            f"Snapshots: {len(known('snapshots', []))}",
        ]
    )


def format_cpu_summary(summary: dict[str, Any]) -> str:
    """Snapshots, peak and change, a line each."""
    return "\n".join(
        [
            f"Snapshots collected: {summary.get('snapshots_collected', 0)}",
            f"Peak RSS: {format_bytes(summary.get('peak_memory_usage', 0))}",
            _change(summary),
        ]
    )


def _change(summary: dict[str, Any]) -> str:
    change = summary.get("memory_change_from_baseline", 0)
    return f"Δ from baseline: {'-' if change < 0 else ''}{format_bytes(abs(change))}"
