"""Pictures of the results of JAX profiles and trackers, and their numbers as files; the drawing is shared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from stormlog._jax.runtime import MIB
from stormlog.tensorflow.visualizer import MemoryVisualizer as _Visualizer

__all__ = ["MemoryVisualizer"]


class MemoryVisualizer(_Visualizer):
    """Draws results of JAX, whose sizes are bytes. Where memory is unknown nothing is drawn."""

    _framework = "JAX"

    def plot_memory_timeline(
        self, results: Any, interactive: bool = False, save_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Device memory over time; shown in a browser without a path to save it under."""
        super().plot_memory_timeline(_in_megabytes(results), interactive, save_path)

    def plot_function_comparison(
        self,
        function_profiles: Mapping[str, Mapping[str, Any]],
        save_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """A bar a function: its peak."""
        super().plot_function_comparison(_profiles(function_profiles), save_path)

    def create_memory_heatmap(self, results: Any, save_path: str | os.PathLike[str] | None = None) -> None:
        """Ten samples a row, dark where memory is high."""
        super().create_memory_heatmap(_in_megabytes(results), save_path)

    def create_interactive_dashboard(self, results: Any, port: int = 8050) -> str:
        """All of it as one page in a browser; no server is started, `port` is not used. Gives its address."""
        return super().create_interactive_dashboard(_in_megabytes(results), port)

    def export_data(self, results: Any, output_path: str | os.PathLike[str], format: str = "csv") -> None:
        """The snapshots or samples as `csv`, or all as `json`."""
        super().export_data(_in_megabytes(results), output_path, format)


def _in_megabytes(results: Any) -> Any:
    """The results under the names and in the unit of the shared drawing."""
    if isinstance(results, SimpleNamespace) and hasattr(results, "is_converted"):
        return results
    rows = [
        SimpleNamespace(
            timestamp=shot.timestamp,
            name=shot.name,
            gpu_memory_mb=shot.device_memory_bytes / MIB,
            cpu_memory_mb=shot.cpu_memory_bytes / MIB,
            num_tensors=None,
        )
        for shot in getattr(results, "snapshots", ())
        if shot.device_memory_available
    ]
    usage = [held / MIB for held in getattr(results, "memory_usage", ())]
    times = list(getattr(results, "timestamps", ()))
    if not rows:
        rows = [
            SimpleNamespace(
                timestamp=at, name="sample", gpu_memory_mb=mb, cpu_memory_mb=None, num_tensors=None
            )
            for at, mb in zip(times, usage, strict=False)
        ]
    profiles = getattr(results, "function_profiles", None)
    return SimpleNamespace(
        is_converted=True,
        snapshots=rows,
        function_profiles=None if profiles is None else _profiles(profiles),
        peak_memory_mb=getattr(results, "peak_memory_mb", 0),
        average_memory_mb=getattr(results, "average_memory_mb", 0),
        total_allocations=0,
    )


def _profiles(profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    def peak(row: Mapping[str, Any]) -> float:
        return float(row.get("peak_memory", row.get("peak_memory_bytes", 0) / MIB))

    return {name: {**row, "peak_memory": peak(row)} for name, row in profiles.items()}
