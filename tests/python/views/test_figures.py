"""Figures in the hands of programs that were written for matplotlib's and plotly's."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib.figure
import pytest
from stormlog import MemoryVisualizer
from stormlog.profiler import MemorySnapshot, ProfileResult

GIB = 1024**3


def snapshot(at: float, allocated: int) -> MemorySnapshot:
    return MemorySnapshot(at, allocated, allocated + GIB, allocated, allocated, allocated, 0, 0, 0, "step")


def result(name: str, at: float) -> ProfileResult:
    before, after = snapshot(at, GIB), snapshot(at + 0.5, 2 * GIB)
    return ProfileResult(name, 0.5, before, after, after, GIB, 0, 3, 1)


RESULTS = [result("forward", 100.0), result("backward", 101.0)]
SNAPSHOTS = [snapshot(100.0 + step, GIB * (step + 1)) for step in range(4)]
DRAW = MemoryVisualizer()
FIGURES: dict[str, Callable[[bool], Any]] = {
    "timeline": lambda interactive: DRAW.plot_memory_timeline([], SNAPSHOTS, interactive=interactive),
    "functions": lambda interactive: DRAW.plot_function_comparison(RESULTS, interactive=interactive),
    "heat": lambda _: DRAW.plot_memory_heatmap(RESULTS),
    "dashboard": lambda _: DRAW.create_dashboard(RESULTS, SNAPSHOTS),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_converts_with_all_its_panels(name: str) -> None:
    figure = FIGURES[name](True)
    panels = {"timeline": 2, "functions": 1, "heat": 2, "dashboard": 4}[name]  # heat: one for the colours
    made = figure.to_matplotlib()
    assert isinstance(made, matplotlib.figure.Figure)
    assert len(made.axes) == panels
    page = figure.to_plotly()
    assert isinstance(page, import_module("plotly.graph_objects").Figure)
    assert len(page.data) >= 1 and figure.title in page.layout.title.text


def test_the_numbers_are_those_of_the_profile() -> None:
    figure = FIGURES["timeline"](False)
    (line,) = figure.to_matplotlib().axes[0].lines
    assert list(line.get_xdata()) == [0.0, 1.0, 2.0, 3.0]
    assert list(line.get_ydata()) == [1.0, 2.0, 3.0, 4.0], "in GB, as the label says"
    assert list(FIGURES["timeline"](True).to_plotly().data[1].y) == [2.0, 3.0, 4.0, 5.0]


def test_changed_figure_is_saved_as_changed(tmp_path: Path) -> None:
    figure = FIGURES["timeline"](False)
    figure.axes[0].set_title("before the change")
    figure.axes[0].set_title("after the change")
    figure.tight_layout()
    figure.savefig(tmp_path / "picture.svg", metadata={"Title": "kept"})
    assert "kept" in (tmp_path / "picture.svg").read_text()

    page = FIGURES["timeline"](True)
    page.update_layout(title="another title").add_annotation(text="a note", x=1, y=1)
    page.write_html(tmp_path / "page.html", include_plotlyjs=False)
    written = (tmp_path / "page.html").read_text()
    assert "another title" in written and "a note" in written


def test_a_stream_takes_a_picture_without_either_package() -> None:
    program = (
        "import io, sys\n"
        "sys.modules['matplotlib'] = sys.modules['plotly'] = None\n"
        "sys.modules['matplotlib.figure'] = sys.modules['plotly.subplots'] = None\n"
        "from stormlog._plot.figure import Figure, axis, lines, series\n"
        "figure = Figure('t', [lines('', axis('x'), axis('y'), [series('s', [(0, 1), (1, 2)])])])\n"
        "stream = io.BytesIO(); figure.savefig(stream)\n"
        "assert stream.getvalue().startswith(b'\\x89PNG'), stream.getvalue()[:9]\n"
        "stream = io.BytesIO(); figure.savefig(stream, format='svg')\n"
        "assert b'<svg' in stream.getvalue()\n"
        "assert not hasattr(figure, 'axes')\n"
        "try:\n    figure.to_matplotlib()\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install matplotlib" in done.stdout


def test_a_stream_takes_a_picture(tmp_path: Path) -> None:
    stream = io.BytesIO()
    FIGURES["heat"](False).savefig(stream, dpi=100)
    assert stream.getvalue().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="not pdf"):
        FIGURES["heat"](False).savefig(io.BytesIO(), format="pdf")


def test_saving_a_picture_imports_neither_package() -> None:
    program = (
        "import io, sys\n"
        "from stormlog._plot.figure import Figure, axis, lines, series\n"
        "figure = Figure('t', [lines('', axis('x'), axis('y'), [series('s', [(0, 1)])])])\n"
        "figure.savefig(io.BytesIO())\n"
        "assert not {'matplotlib', 'plotly'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
