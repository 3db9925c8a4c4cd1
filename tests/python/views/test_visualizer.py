"""Pictures: files that are what their names say, drawn without matplotlib, plotly or pandas."""

from __future__ import annotations

import csv
import json
import logging
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stormlog import MemoryVisualizer
from stormlog.profiler import MemorySnapshot, ProfileResult
from stormlog.telemetry import TelemetryEventV4, telemetry_event_from_record
from stormlog.tensorflow import TensorFlowVisualizer

GIB = 1024**3


def snapshot(at: float, allocated: int, operation: str | None = None) -> MemorySnapshot:
    return MemorySnapshot(
        at, allocated, allocated + GIB // 4, allocated, allocated, allocated, 0, 0, 0, operation
    )


def result(name: str, at: float, allocated: int) -> ProfileResult:
    before, after = snapshot(at, GIB), snapshot(at + 0.5, GIB + allocated)
    peak = snapshot(at + 0.2, GIB + 2 * allocated)
    return ProfileResult(name, 0.5, before, after, peak, allocated, allocated // 2, 3, 1)


RESULTS = [result(f"layer_{step % 4}.forward", 100.0 + step, (step + 1) * 64 * 1024**2) for step in range(12)]
SNAPSHOTS = [snapshot(100.0 + step * 0.1, GIB + step * 1024**2, "monitor") for step in range(50)]


def size_of(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def texts(svg: Path) -> list[str]:
    root = ET.fromstring(svg.read_text())
    assert root.tag.endswith("svg")
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_every_plot_is_the_file_its_name_asks_for(tmp_path: Path) -> None:
    draw = MemoryVisualizer()
    plots: dict[str, Any] = {
        "timeline": lambda path: draw.plot_memory_timeline(RESULTS, SNAPSHOTS, path, interactive=False),
        "functions": lambda path: draw.plot_function_comparison(RESULTS, "peak_memory", path),
        "heat": lambda path: draw.plot_memory_heatmap(RESULTS, path),
        "dashboard": lambda path: draw.create_dashboard(RESULTS, SNAPSHOTS, path),
    }
    for name, plot in plots.items():
        for form in ("png", "svg", "html"):
            plot(str(tmp_path / f"{name}.{form}"))
        width, height = size_of(tmp_path / f"{name}.png")
        assert width >= 2000 and height >= 300
        assert texts(tmp_path / f"{name}.svg")
        page = (tmp_path / f"{name}.html").read_text()
        assert page.startswith("<!doctype html>") and len(page) < 400_000
        for reference in ('src="', "<link", "@import", "fetch("):
            assert reference not in page
    assert "Allocated Memory (GiB)" in texts(tmp_path / "timeline.svg")
    assert "Peak Memory Usage (GiB)" in texts(tmp_path / "functions.svg")
    assert "layer_0.forward" in texts(tmp_path / "heat.svg")


def test_a_bare_name_is_a_page_when_interactive_and_a_picture_when_not(tmp_path: Path) -> None:
    draw = MemoryVisualizer()
    draw.plot_memory_timeline(RESULTS, save_path=str(tmp_path / "a"))
    draw.plot_memory_timeline(RESULTS, save_path=tmp_path / "b", interactive=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.png"]
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.html, not \.bmp"):
        draw.plot_memory_timeline(RESULTS, save_path=str(tmp_path / "c.bmp"))


def test_figures_answer_to_the_names_programs_call(tmp_path: Path) -> None:
    figure = MemoryVisualizer().plot_memory_timeline(RESULTS)
    figure.savefig(str(tmp_path / "dpi.png"), dpi=100, bbox_inches="tight")
    figure.write_html(str(tmp_path / "page.html"))
    figure.write_image(str(tmp_path / "image.svg"), width=1200)
    assert size_of(tmp_path / "dpi.png")[0] == 1200
    assert figure._repr_svg_().startswith("<svg ")
    assert "Over Time" in repr(figure)


def test_empty_plot_is_reported(tmp_path: Path) -> None:
    draw = MemoryVisualizer()
    for call, message in (
        (lambda: draw.plot_memory_timeline(), "No data available for plotting"),
        (lambda: draw.plot_function_comparison([]), "No results available for comparison"),
        (lambda: draw.plot_function_comparison(RESULTS, "colour"), "Unknown metric: colour"),
        (lambda: draw.plot_memory_heatmap([]), "No results available for heatmap"),
        (lambda: draw.plot_cross_rank_timeline([]), "No telemetry events available"),
        (lambda: draw.export_data(format="xml"), "Unsupported format: xml"),
        (lambda: draw.export_data(), "No data available for CSV export"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_profiler_is_asked_for_what_is_not_given(tmp_path: Path) -> None:
    profiler: Any = SimpleNamespace(results=RESULTS, snapshots=SNAPSHOTS)
    MemoryVisualizer(profiler).plot_memory_timeline(save_path=str(tmp_path / "own.svg"))
    assert texts(tmp_path / "own.svg")


def events_of_ranks() -> list[TelemetryEventV4]:
    def event(rank: int, step: int) -> TelemetryEventV4:
        jump = 4 * GIB if (rank == 2 and step >= 20) or step >= 40 else 0
        record = {
            "timestamp_ns": 1_700_000_000_000_000_000 + step * 100_000_000,
            "event_type": "sample",
            "device_id": 0,
            "allocator_allocated_bytes": GIB,
            "allocator_reserved_bytes": GIB,
            "device_used_bytes": GIB + jump,
            "device_total_bytes": 80 * GIB,
            "job_id": "night",
            "rank": rank,
            "local_rank": rank,
            "world_size": 4,
        }
        return telemetry_event_from_record(record, default_session_id=f"s{rank}")

    return [event(rank, step) for rank in range(4) for step in range(80)]


def test_ranks_are_drawn_on_one_clock_with_the_first_of_them_named(tmp_path: Path) -> None:
    MemoryVisualizer().plot_cross_rank_timeline(events_of_ranks(), str(tmp_path / "ranks.svg"))
    found = texts(tmp_path / "ranks.svg")
    assert "Cross-Rank Memory Timeline (night) - top suspect rank 2" in found
    assert {"Rank 0", "Rank 3", "Cluster onset", "Rank 2 first cause", "Aligned Time (s)"} <= set(found)


def test_exports_have_the_columns_and_names_of_the_older_release(tmp_path: Path) -> None:
    draw = MemoryVisualizer()
    first = draw.export_data(RESULTS, SNAPSHOTS, save_path=str(tmp_path / "data"))
    assert Path(first).name.startswith("data_results_") and first.endswith(".csv")
    with Path(first).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "function_name",
        "execution_time",
        "memory_allocated",
        "memory_freed",
        "peak_memory",
        "memory_diff",
        "tensors_created",
        "tensors_deleted",
    ]
    assert int(rows[0]["peak_memory"]) == RESULTS[0].peak_memory_usage()
    assert any(path.name.startswith("data_snapshots_") for path in tmp_path.iterdir())
    written = json.loads(
        Path(draw.export_data(RESULTS, format="json", save_path=str(tmp_path / "all"))).read_text()
    )
    assert (
        written["metadata"]["num_results"] == 12
        and written["results"][0]["function_name"] == "layer_0.forward"
    )


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "</text><script>alert(1)</script>\x00" + "x" * 3000
    wild = [result(name, 1.0, GIB), result("nan", float("nan"), GIB)]
    draw = MemoryVisualizer()
    draw.create_dashboard(wild, SNAPSHOTS, str(tmp_path / "wild.svg"))
    draw.plot_memory_timeline(wild, save_path=str(tmp_path / "wild.html"))
    assert "<script" not in (tmp_path / "wild.svg").read_text()
    assert texts(tmp_path / "wild.svg")


def test_no_plotting_library_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from stormlog.visualizer import MemoryVisualizer as V;"
        "import stormlog.tensorflow.visualizer;"
        "V(); bad = {'matplotlib', 'plotly', 'numpy', 'pandas', 'torch', 'tensorflow'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensorflow_plots_have_the_older_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shots = [
        SimpleNamespace(
            timestamp=float(step), name="s", gpu_memory_mb=100.0 + step, cpu_memory_mb=1.0, num_tensors=3
        )
        for step in range(1200)
    ]
    results = SimpleNamespace(
        snapshots=shots,
        function_profiles={"train": {"peak_memory": 900.0}, "evaluate": {"peak_memory": 300.0}},
        peak_memory_mb=1300.0,
        average_memory_mb=700.0,
        total_allocations=5,
    )
    draw = TensorFlowVisualizer(style="seaborn", figure_size=(4, 3))
    draw.save_plots(results, str(tmp_path / "plots"))
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["function_comparison.png", "heatmap.png", "timeline.png"]
    assert size_of(tmp_path / "plots" / "heatmap.png")[1] < 4000
    draw.export_data(results, str(tmp_path / "out.csv"))
    draw.export_data(results, str(tmp_path / "out.json"), "json")
    assert json.loads((tmp_path / "out.json").read_text())["peak_memory_mb"] == 1300.0
    assert (
        (tmp_path / "out.csv")
        .read_text()
        .startswith("timestamp,name,gpu_memory_mb,cpu_memory_mb,num_tensors")
    )
    with caplog.at_level(logging.WARNING):
        draw.plot_memory_timeline(SimpleNamespace())
        draw.create_memory_heatmap(SimpleNamespace(snapshots=shots[:3]))
    assert "No snapshots available" in caplog.text and "Insufficient data" in caplog.text
