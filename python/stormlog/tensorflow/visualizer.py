"""Pictures of the results of TensorFlow profiles and trackers, and their numbers as files.

The names of 0.4.3; needs neither matplotlib nor plotly. Where there is nothing to draw it says so in the log
and draws nothing, as 0.4.3 does. Sizes are megabytes, as TensorFlow's results have them.
"""

from __future__ import annotations

import csv
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormlog._plot import figure as draw
from stormlog._plot.figure import Figure
from stormlog.tensorflow._advice import held_mb

__all__ = ["MemoryVisualizer"]

_LOGGER = logging.getLogger(__name__)
_MIB = 1024 * 1024
_GROUP = 10
_COLUMNS = ("timestamp", "name", "gpu_memory_mb", "cpu_memory_mb", "num_tensors")
_SUMMARY = ("peak_memory_mb", "average_memory_mb", "total_allocations")


class MemoryVisualizer:
    """Draws results; `style` and `figure_size` are kept for programs that give them."""

    _framework = "TensorFlow"

    def __init__(self, style: str = "default", figure_size: tuple[int, int] = (12, 8)) -> None:
        self.style = style
        self.figure_size = figure_size

    def plot_memory_timeline(
        self, results: Any, interactive: bool = False, save_path: str | os.PathLike[str] | None = None
    ) -> None:
        """Memory over time; shown in a browser without a path to save it under."""
        moments = _timeline(results)
        if not moments:
            _LOGGER.warning("No snapshots available for plotting")
            return
        _deliver(
            Figure(f"{self._framework} GPU Memory Usage Timeline", [_memory(moments)]), save_path, interactive
        )

    def plot_function_comparison(
        self,
        function_profiles: Mapping[str, Mapping[str, Any]],
        save_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """A bar a function: its peak."""
        if not function_profiles:
            _LOGGER.warning("No function profiles available")
            return
        _deliver(Figure("Function Memory Usage Comparison", [_functions(function_profiles)]), save_path)

    def create_memory_heatmap(self, results: Any, save_path: str | os.PathLike[str] | None = None) -> None:
        """Ten samples a row, dark where memory is high."""
        values = [used for _, used in _timeline(results)]
        if len(values) < _GROUP:
            _LOGGER.warning("Insufficient data for heatmap")
            return
        most = max(values) or 1.0
        rows = [values[start : start + _GROUP] for start in range(0, len(values), _GROUP)]
        # A picture has no room for more rows than this; neighbours are then seen as one, by their highest.
        fold = -(-len(rows) // 50)
        folded = [
            [max(column) for column in zip(*_padded(rows[start : start + fold]), strict=True)]
            for start in range(0, len(rows), fold)
        ]
        panel = draw.heat(
            [f"from sample {start * fold * _GROUP}" for start in range(len(folded))],
            [],
            [[value / most for value in row] for row in folded],
            [[f"{value / _MIB:.0f}" for value in row] for row in folded],
            scale=("0 MiB", f"{most / _MIB:.0f} MiB"),
            x="Samples of a group",
        )
        _deliver(Figure("Memory Usage Heatmap", [panel]), save_path)

    def create_interactive_dashboard(self, results: Any, port: int = 8050) -> str:
        """All of it as one page in a browser; no server is started, `port` is not used. Gives its address."""
        panels = [_memory(_timeline(results))]
        profiles = getattr(results, "function_profiles", None)
        if profiles:
            panels.append(_functions(profiles))
        facts = (
            f"peak {getattr(results, 'peak_memory_mb', 0):.2f} MB, "
            f"average {getattr(results, 'average_memory_mb', 0):.2f} MB, "
            f"{getattr(results, 'total_allocations', 0)} allocations"
        )
        return str(Figure(f"{self._framework} Stormlog Dashboard", panels, subtitle=facts).show())

    def export_data(self, results: Any, output_path: str | os.PathLike[str], format: str = "csv") -> None:
        """The snapshots as `csv`, or all as `json`."""
        snapshots = list(getattr(results, "snapshots", ()))
        rows = [{column: getattr(shot, column, None) for column in _COLUMNS} for shot in snapshots]
        if format.lower() == "csv":
            if not rows:
                _LOGGER.warning("No data to export")
                return
            with Path(output_path).open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, _COLUMNS)
                writer.writeheader()
                writer.writerows(rows)
        elif format.lower() == "json":
            summary = {name: getattr(results, name, 0) for name in _SUMMARY}
            with Path(output_path).open("w", encoding="utf-8") as file:
                json.dump({**summary, "snapshots": rows}, file, indent=2)
        else:
            _LOGGER.error("Unsupported export format: %s", format)

    def save_plots(self, results: Any, output_dir: str | os.PathLike[str] = "./plots/") -> None:
        """`timeline.png`, `function_comparison.png`, `heatmap.png`: what there is something to draw for."""
        folder = Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self.plot_memory_timeline(results, save_path=folder / "timeline.png")
        if getattr(results, "function_profiles", None) is not None:
            path = folder / "function_comparison.png"
            self.plot_function_comparison(results.function_profiles, save_path=path)
        self.create_memory_heatmap(results, save_path=folder / "heatmap.png")


def _timeline(results: Any) -> list[tuple[float, float]]:
    """Seconds since the first, and bytes; of a profile's snapshots or a tracker's samples."""
    snapshots = getattr(results, "snapshots", None)
    if snapshots:
        pairs = [(shot.timestamp, held_mb(shot)) for shot in snapshots]
    else:
        times, usage = getattr(results, "timestamps", ()), getattr(results, "memory_usage", ())
        pairs = list(zip(times, usage, strict=False))
    return [(at - pairs[0][0], megabytes * _MIB) for at, megabytes in pairs]


def _memory(moments: list[tuple[float, float]]) -> dict[str, Any]:
    line = draw.series("Memory", moments, fill=True)
    return draw.lines("", draw.axis("Time", "seconds"), draw.axis("Memory usage", "bytes"), [line])


def _functions(profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    peaks = [profile.get("peak_memory", 0) * _MIB for profile in profiles.values()]
    return draw.bars("", draw.axis("Functions"), draw.axis("Peak memory", "bytes"), list(profiles), peaks)


def _padded(rows: list[list[float]]) -> list[list[float]]:
    width = max(len(row) for row in rows)
    return [row + [0.0] * (width - len(row)) for row in rows]


def _deliver(figure: Figure, path: str | os.PathLike[str] | None, interactive: bool = False) -> None:
    if path is None:
        figure.show()
    elif interactive and not Path(path).suffix:
        figure.write_html(os.fspath(path) + ".html")
    else:
        figure.save(path)
