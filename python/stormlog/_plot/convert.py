"""A described picture as a figure of matplotlib or plotly, for programs that go on working with one.

Everything a description says is in the figure: panels, lines, moments, dots, bars, heat. Needs the package
that is asked for. Must never be imported by a program that only saves pictures.
"""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import Any

__all__ = ["Absent", "to_matplotlib", "to_plotly"]

_GIB = 1024**3


class Absent(ImportError):
    """The package is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"{package} is not installed: pip install {package}; saving as .png, .svg or .html needs none",
            name=package,
        )


def to_matplotlib(described: dict[str, Any]) -> Any:
    """A `matplotlib.figure.Figure` with one axes a panel, and one more for the colours of a heat map."""
    try:
        made = import_module("matplotlib.figure")
    except ImportError:
        raise Absent("matplotlib") from None
    panels, columns = described["panels"], described["columns"]
    rows = -(-len(panels) // columns)
    figure = made.Figure(figsize=(12, 8), dpi=100, layout="tight")
    figure.suptitle(_heading(described))
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, place)
        axes.set_title(panel["title"])
        axes.set_xlabel(_label(panel["x"]))
        axes.set_ylabel(_label(panel["y"]))
        ((kind, content),) = panel["content"].items()
        {"lines": _axes_lines, "bars": _axes_bars, "points": _axes_points, "heat": _axes_heat}[kind](
            axes, panel, content
        )
    return figure


def to_plotly(described: dict[str, Any]) -> Any:
    """A `plotly.graph_objects.Figure` with one subplot a panel."""
    try:
        subplots, objects = import_module("plotly.subplots"), import_module("plotly.graph_objects")
    except ImportError:
        raise Absent("plotly") from None
    panels, columns = described["panels"], described["columns"]
    rows = -(-len(panels) // columns)
    figure = subplots.make_subplots(
        rows=rows, cols=columns, subplot_titles=[panel["title"] for panel in panels]
    )
    for place, panel in enumerate(panels):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        ((kind, content),) = panel["content"].items()
        {"lines": _plotly_lines, "bars": _plotly_bars, "points": _plotly_points, "heat": _plotly_heat}[kind](
            figure, objects, at, panel, content
        )
        figure.update_xaxes(title_text=_label(panel["x"]), **at)
        figure.update_yaxes(title_text=_label(panel["y"]), **at)
    figure.update_layout(title=_heading(described), height=max(400, 400 * rows))
    return figure


def _heading(described: dict[str, Any]) -> str:
    return "\n".join(part for part in (described["title"], described["subtitle"]) if part)


def _label(axis: dict[str, Any]) -> str:
    unit = {"bytes": "GB", "seconds": "s"}.get(axis["measure"])
    return f"{axis['label']} ({unit})" if unit else str(axis["label"])


def _scaled(axis: dict[str, Any], values: list[float]) -> list[float]:
    return [value / _GIB for value in values] if axis["measure"] == "bytes" else values


def _columns(panel: dict[str, Any], points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return (
        _scaled(panel["x"], [x for x, _ in points]),
        _scaled(panel["y"], [y for _, y in points]),
    )


def _axes_lines(axes: Any, panel: dict[str, Any], content: dict[str, Any]) -> None:
    for line in content["series"]:
        x, y = _columns(panel, line["points"])
        (drawn,) = axes.plot(x, y, label=line["name"], color=line["colour"])
        if line["fill"]:
            axes.fill_between(x, y, alpha=0.3, color=drawn.get_color())
    for moment in content["moments"]:
        axes.axvline(_scaled(panel["x"], [moment["at"]])[0], linestyle="--", label=moment["name"])
    for dot in content["dots"]:
        x, y = _columns(panel, [(dot["x"], dot["y"])])
        axes.plot(x, y, "o", label=dot["name"])
    axes.grid(True, alpha=0.3)
    if content["series"]:
        axes.legend()


def _axes_bars(axes: Any, panel: dict[str, Any], content: dict[str, Any]) -> None:
    values = _scaled(panel["y"], content["values"])
    if "names" in content:
        axes.bar(content["names"], values)
        axes.tick_params(axis="x", rotation=45)
    else:
        axes.stairs(values, _scaled(panel["x"], content["edges"]), fill=True)


def _axes_points(axes: Any, panel: dict[str, Any], content: dict[str, Any]) -> None:
    axes.scatter(*_columns(panel, content["points"]), alpha=0.6)
    axes.grid(True, alpha=0.3)


def _axes_heat(axes: Any, panel: dict[str, Any], content: dict[str, Any]) -> None:
    image = axes.imshow(content["shares"], aspect="auto", vmin=0, vmax=1, cmap="viridis")
    axes.set_xticks(range(len(content["columns"])), content["columns"], rotation=45)
    axes.set_yticks(range(len(content["rows"])), content["rows"])
    for row, texts in enumerate(content["texts"]):
        for column, text in enumerate(texts):
            axes.text(column, row, text, ha="center", va="center", color="white")
    if content["scale"]:
        axes.figure.colorbar(image, ax=axes)


def _plotly_lines(
    figure: Any, objects: Any, at: dict[str, int], panel: dict[str, Any], content: dict[str, Any]
) -> None:
    for line in content["series"]:
        x, y = _columns(panel, line["points"])
        figure.add_trace(
            objects.Scatter(
                x=x,
                y=y,
                name=line["name"],
                mode="lines",
                text=line["labels"] or None,
                line={"color": line["colour"]},
                fill="tozeroy" if line["fill"] else None,
            ),
            **at,
        )
    for moment in content["moments"]:
        figure.add_vline(
            x=_scaled(panel["x"], [moment["at"]])[0], line_dash="dash", annotation_text=moment["name"], **at
        )
    for dot in content["dots"]:
        x, y = _columns(panel, [(dot["x"], dot["y"])])
        figure.add_trace(objects.Scatter(x=x, y=y, mode="markers", name=dot["name"]), **at)


def _plotly_bars(
    figure: Any, objects: Any, at: dict[str, int], panel: dict[str, Any], content: dict[str, Any]
) -> None:
    values = _scaled(panel["y"], content["values"])
    if "names" in content:
        figure.add_trace(objects.Bar(x=content["names"], y=values, showlegend=False), **at)
        return
    edges = _scaled(panel["x"], content["edges"])
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    widths = [high - low for low, high in pairwise(edges)]
    figure.add_trace(objects.Bar(x=middles, y=values, width=widths, showlegend=False), **at)


def _plotly_points(
    figure: Any, objects: Any, at: dict[str, int], panel: dict[str, Any], content: dict[str, Any]
) -> None:
    x, y = _columns(panel, content["points"])
    figure.add_trace(objects.Scatter(x=x, y=y, mode="markers", showlegend=False), **at)


def _plotly_heat(
    figure: Any, objects: Any, at: dict[str, int], panel: dict[str, Any], content: dict[str, Any]
) -> None:
    figure.add_trace(
        objects.Heatmap(
            z=content["shares"],
            x=content["columns"],
            y=content["rows"],
            text=content["texts"] or None,
            texttemplate="%{text}" if content["texts"] else None,
            zmin=0,
            zmax=1,
            colorscale="Viridis",
            showscale=content["scale"] is not None,
        ),
        **at,
    )
