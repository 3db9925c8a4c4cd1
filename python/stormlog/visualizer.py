"""Pictures of profiled calls and of telemetry, and their numbers as files.

The names of 0.4.3's `MemoryVisualizer`, without matplotlib, plotly or pandas: figures are drawn natively as
PNG, SVG or one interactive HTML page, chosen by the name they are saved under. Must never change what it is
given.
"""

from __future__ import annotations

import csv
import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from stormlog._plot import figure as draw
from stormlog._plot.figure import Figure
from stormlog.distributed_analysis import analyze_cross_rank_events

if TYPE_CHECKING:
    from stormlog.profiler import GPUMemoryProfiler, MemorySnapshot, ProfileResult
    from stormlog.telemetry import TelemetryEventLike

__all__ = ["Figure", "MemoryVisualizer"]

_METRICS = {
    "memory_allocated": ("Average Memory Allocation by Function", "Average Memory Allocated", "bytes"),
    "execution_time": ("Average Execution Time by Function", "Average Execution Time", "seconds"),
    "peak_memory": ("Peak Memory Usage by Function", "Peak Memory Usage", "bytes"),
}
_RESULT_COLUMNS = (
    "function_name",
    "execution_time",
    "memory_allocated",
    "memory_freed",
    "peak_memory",
    "memory_diff",
    "tensors_created",
    "tensors_deleted",
)
_SNAPSHOT_COLUMNS = (
    "timestamp",
    "operation",
    "allocated_memory",
    "reserved_memory",
    "active_memory",
    "inactive_memory",
    "device_id",
)
_GIB = 1024**3


class MemoryVisualizer:
    """Draws the results of a profiler, or data that is passed, as PNG, SVG or an interactive page."""

    def __init__(self, profiler: GPUMemoryProfiler | None = None) -> None:
        self.profiler = profiler
        # Kept for programs that read it: figures have a look of their own.
        self.style_config: dict[str, Any] = {
            "figure_size": (12, 8),
            "dpi": 100,
            "color_palette": "viridis",
            "font_size": 10,
            "title_size": 14,
            "label_size": 12,
        }

    def plot_memory_timeline(
        self,
        results: Sequence[ProfileResult] | None = None,
        snapshots: Sequence[MemorySnapshot] | None = None,
        save_path: str | os.PathLike[str] | None = None,
        interactive: bool = True,
    ) -> Figure:
        """Allocated and reserved memory over time, one above the other; ValueError without data."""
        results, snapshots = self._results(results), self._snapshots(snapshots)
        if not results and not snapshots:
            raise ValueError("No data available for plotting")
        moments = [
            (shot.timestamp, shot.allocated_memory, shot.reserved_memory, shot.operation or "monitor")
            for shot in snapshots
        ]
        for result in results:
            for when, shot in (("before", result.memory_before), ("after", result.memory_after)):
                label = f"{when}_{result.function_name}"
                moments.append((shot.timestamp, shot.allocated_memory, shot.reserved_memory, label))
        moments.sort(key=lambda moment: moment[0])
        start, labels = moments[0][0], [moment[3] for moment in moments]
        columns = (
            ("Allocated", "#1f6fb2", [(moment[0] - start, moment[1]) for moment in moments]),
            ("Reserved", "#c0392b", [(moment[0] - start, moment[2]) for moment in moments]),
        )
        panels = [
            draw.lines(
                f"{name} Memory",
                draw.axis("Time", "seconds"),
                draw.axis(f"{name} Memory", "bytes"),
                [draw.series(name, points, labels=labels, fill=True, colour=colour)],
            )
            for name, colour, points in columns
        ]
        return _saved(
            Figure("GPU Memory Usage Over Time", panels, interactive=interactive), save_path, interactive
        )

    def plot_cross_rank_timeline(
        self, events: Sequence[TelemetryEventLike], save_path: str | os.PathLike[str] | None = None
    ) -> Figure:
        """The device memory of every rank on one clock, which jumped first, and when the others followed."""
        if not events:
            raise ValueError("No telemetry events available for cross-rank plotting")
        merged, cause = analyze_cross_rank_events(events)
        if not merged.merged_points:
            raise ValueError("No timeline points available for cross-rank plotting")
        start = min(point.aligned_timestamp_ns for point in merged.merged_points)
        ranks: dict[int, list[tuple[float, float]]] = {}
        for rank in sorted(merged.participating_ranks):
            ranks[rank] = []
        for point in merged.merged_points:
            at = (point.aligned_timestamp_ns - start) / 1e9
            ranks.setdefault(point.rank, []).append((at, point.device_used_bytes))
        title = "Cross-Rank Memory Timeline" + (f" ({merged.job_id})" if merged.job_id else "")
        dots = []
        if cause.suspects:
            first = cause.suspects[0]
            title += f" - top suspect rank {first.rank}"
            at = (first.aligned_first_spike_timestamp_ns - start) / 1e9
            height = next((used for moment, used in ranks.get(first.rank, ()) if moment == at), None)
            if height is not None:
                dots.append((f"Rank {first.rank} first cause", at, height))
        onset = cause.cluster_onset_timestamp_ns
        panel = draw.lines(
            "",
            draw.axis("Aligned Time", "seconds"),
            draw.axis("Device Used Memory", "bytes"),
            [draw.series(f"Rank {rank}", points) for rank, points in ranks.items()],
            moments=[] if onset is None else [("Cluster onset", (onset - start) / 1e9)],
            dots=dots,
        )
        return _saved(Figure(title, [panel]), save_path, interactive=False)

    def plot_function_comparison(
        self,
        results: Sequence[ProfileResult] | None = None,
        metric: str = "memory_allocated",
        save_path: str | os.PathLike[str] | None = None,
        interactive: bool = True,
    ) -> Figure:
        """A bar a function: `memory_allocated`, `execution_time` (both averages) or `peak_memory`."""
        results = self._results(results)
        if not results:
            raise ValueError("No results available for comparison")
        if metric not in _METRICS:
            raise ValueError(f"Unknown metric: {metric}")
        title, label, measure = _METRICS[metric]
        values = {name: _metric_of(calls, metric) for name, calls in _by_function(results).items()}
        panel = draw.bars(
            "", draw.axis("Function"), draw.axis(label, measure), list(values), list(values.values())
        )
        return _saved(Figure(title, [panel], interactive=interactive), save_path, interactive)

    def plot_memory_heatmap(
        self,
        results: Sequence[ProfileResult] | None = None,
        save_path: str | os.PathLike[str] | None = None,
    ) -> Figure:
        """Functions and what each takes of time and memory, coloured column by column."""
        results = self._results(results)
        if not results:
            raise ValueError("No results available for heatmap")
        functions = sorted(_by_function(results).items())
        rows = [
            [
                fmean(call.execution_time for call in calls),
                fmean(call.memory_allocated for call in calls) / _GIB,
                fmean(call.memory_freed for call in calls) / _GIB,
                fmean(call.peak_memory_usage() for call in calls) / _GIB,
            ]
            for _, calls in functions
        ]
        most = [max(row[column] for row in rows) for column in range(4)]
        panel = draw.heat(
            [name for name, _ in functions],
            ["Execution Time (s)", "Memory Allocated (GiB)", "Memory Freed (GiB)", "Peak Memory (GiB)"],
            [[value / top if top > 0 else 0.0 for value, top in zip(row, most, strict=True)] for row in rows],
            [[f"{value:.3f}" for value in row] for row in rows],
            scale=("0", "maximum of its column"),
        )
        figure = Figure("Memory Usage Heatmap by Function", [panel])
        return _saved(figure, save_path, interactive=False)

    def create_dashboard(
        self,
        results: Sequence[ProfileResult] | None = None,
        snapshots: Sequence[MemorySnapshot] | None = None,
        save_path: str | os.PathLike[str] | None = None,
    ) -> Figure:
        """Four panels: memory over time, functions, how much calls allocate, and time against peak."""
        results, snapshots = self._results(results), self._snapshots(snapshots)
        start = snapshots[0].timestamp if snapshots else 0.0
        averages = {
            name: fmean(call.memory_allocated for call in calls)
            for name, calls in _by_function(results).items()
        }
        memory = draw.axis("Memory", "bytes")
        panels = [
            draw.lines(
                "Memory Timeline",
                draw.axis("Time", "seconds"),
                memory,
                [
                    draw.series(
                        "Allocated Memory",
                        [(shot.timestamp - start, shot.allocated_memory) for shot in snapshots],
                    )
                ],
            ),
            draw.bars(
                "Function Comparison",
                draw.axis("Function"),
                draw.axis("Avg Memory", "bytes"),
                list(averages),
                list(averages.values()),
            ),
            draw.histogram("Memory Distribution", memory, [call.memory_allocated for call in results]),
            draw.points(
                "Peak Memory Usage",
                draw.axis("Execution Time", "seconds"),
                draw.axis("Peak Memory", "bytes"),
                [(call.execution_time, call.peak_memory_usage()) for call in results],
            ),
        ]
        figure = Figure("GPU Memory Profiling Dashboard", panels, columns=2, interactive=True)
        return _saved(figure, save_path, interactive=True)

    def export_data(
        self,
        results: Sequence[ProfileResult] | None = None,
        snapshots: Sequence[MemorySnapshot] | None = None,
        format: str = "csv",
        save_path: str = "memory_profile_data",
    ) -> str:
        """Writes `<save_path>_results_<time>.csv` and `_snapshots_`, or one `.json`; the first one's path."""
        results, snapshots = self._results(results), self._snapshots(snapshots)
        # By the clock on the wall, as people look for files.
        stamp = datetime.datetime.now().strftime("%Y%m%d_%H%M%S")
        if format == "json":
            path = f"{save_path}_{stamp}.json"
            content = {
                "metadata": {
                    "export_time": stamp,
                    "num_results": len(results),
                    "num_snapshots": len(snapshots),
                },
                "results": [result.to_dict() for result in results],
                "snapshots": [shot.to_dict() for shot in snapshots],
            }
            with Path(path).open("w", encoding="utf-8") as file:
                json.dump(content, file, indent=2, default=str)
            return path
        if format != "csv":
            raise ValueError(f"Unsupported format: {format}")
        written = []
        if results:
            calculated = [
                {**vars(call), "peak_memory": call.peak_memory_usage(), "memory_diff": call.memory_diff()}
                for call in results
            ]
            written.append(_table(f"{save_path}_results_{stamp}.csv", _RESULT_COLUMNS, calculated))
        if snapshots:
            rows = [vars(shot) for shot in snapshots]
            written.append(_table(f"{save_path}_snapshots_{stamp}.csv", _SNAPSHOT_COLUMNS, rows))
        if not written:
            raise ValueError("No data available for CSV export")
        return written[0]

    def show(self, fig: Any) -> None:
        """Opens a figure in a browser."""
        fig.show()

    def _results(self, given: Sequence[ProfileResult] | None) -> list[ProfileResult]:
        if given is None and self.profiler is not None:
            given = self.profiler.results
        return list(given or ())

    def _snapshots(self, given: Sequence[MemorySnapshot] | None) -> list[MemorySnapshot]:
        if given is None and self.profiler is not None:
            given = list(self.profiler.snapshots)
        return list(given or ())


def _by_function(results: Sequence[ProfileResult]) -> dict[str, list[ProfileResult]]:
    found: dict[str, list[ProfileResult]] = {}
    for result in results:
        found.setdefault(result.function_name, []).append(result)
    return found


def _metric_of(calls: Sequence[ProfileResult], metric: str) -> float:
    if metric == "memory_allocated":
        return fmean(call.memory_allocated for call in calls)
    if metric == "execution_time":
        return fmean(call.execution_time for call in calls)
    return float(max(call.peak_memory_usage() for call in calls))


def _saved(figure: Figure, path: str | os.PathLike[str] | None, interactive: bool) -> Figure:
    """The file's name says what it is; without an extension an interactive figure is a page."""
    if path is not None:
        is_bare = not Path(path).suffix
        figure.save(os.fspath(path) + ".html" if is_bare and interactive else path)
    return figure


def _table(path: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
