"""A picture that has been described and not yet drawn: what the visualizers give back.

It answers to what programs written for 0.4.3 call on matplotlib's and plotly's figures (`savefig`,
`write_html`, `write_image`, `show`). The drawing is native and needs neither of them. Must never hold on to
what was drawn: a description is numbers and names.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stormlog import _native

__all__ = ["Figure", "axis", "bars", "heat", "histogram", "lines", "points", "series"]

_FORMS = {".png": "png", ".svg": "svg", ".html": "html", ".htm": "html"}
_BINS = 20


class Figure:
    """A picture: `save` it, or let a notebook show it."""

    def __init__(
        self, title: str, panels: Sequence[dict[str, Any]], *, subtitle: str = "", columns: int = 1
    ) -> None:
        self.title = title
        self._described = {"title": title, "subtitle": subtitle, "columns": columns, "panels": list(panels)}

    def save(self, path: str | os.PathLike[str], *, scale: float = 2.0) -> str:
        """Writes the file its name asks for (.png, .svg, .html; .png without any); gives its path."""
        file = Path(path)
        if not file.suffix:
            file = file.with_name(file.name + ".png")
        form = _FORMS.get(file.suffix.lower())
        if form is None:
            raise ValueError(f"{file.name}: pictures are .png, .svg or .html, not {file.suffix}")
        file.write_bytes(self._drawn(form, scale))
        return str(file)

    def savefig(self, fname: str | os.PathLike[str], dpi: float | None = None, **_: Any) -> None:
        """As matplotlib's; 100 dots an inch are one pixel a unit."""
        self.save(fname, scale=2.0 if dpi is None else max(dpi / 100.0, 0.5))

    def write_html(self, file: str | os.PathLike[str], **_: Any) -> None:
        """As plotly's: one interactive page, with everything it needs inside."""
        Path(file).write_bytes(self._drawn("html", 1.0))

    def write_image(self, file: str | os.PathLike[str], **_: Any) -> None:
        """As plotly's: a PNG or an SVG."""
        self.save(file)

    def to_html(self) -> str:
        """The interactive page."""
        return self._drawn("html", 1.0).decode()

    def show(self) -> str:
        """Opens the page in a browser and gives its address; a notebook shows the figure by itself."""
        with tempfile.NamedTemporaryFile(prefix="stormlog-", suffix=".html", delete=False) as file:
            file.write(self._drawn("html", 1.0))
        address = Path(file.name).as_uri()
        webbrowser.open(address)
        return address

    def _repr_svg_(self) -> str:
        return self._drawn("svg", 1.0).decode()

    def __repr__(self) -> str:
        return f"<Figure {self.title!r}: save('name.png'), .svg or .html>"

    def _drawn(self, form: str, scale: float) -> bytes:
        return _native.plot.draw_figure(json.dumps(self._described, allow_nan=False), form, scale)


def axis(label: str, measure: str = "number") -> dict[str, Any]:
    """An axis; `measure` is `bytes`, `seconds` or `number` and decides the unit after the label."""
    return {"label": label, "measure": measure}


def series(
    name: str,
    points: Iterable[tuple[float, float]],
    *,
    labels: Sequence[str] = (),
    fill: bool = False,
    colour: str | None = None,
) -> dict[str, Any]:
    """A line."""
    return {
        "name": name,
        "points": _finite(points),
        "labels": list(labels),
        "fill": fill,
        "colour": colour,
    }


def lines(
    title: str,
    x: dict[str, Any],
    y: dict[str, Any],
    drawn: Sequence[dict[str, Any]],
    *,
    moments: Sequence[tuple[str, float]] = (),
    dots: Sequence[tuple[str, float, float]] = (),
) -> dict[str, Any]:
    """A panel of lines, with moments from top to bottom and named points."""
    content = {
        "series": list(drawn),
        "moments": [{"name": name, "at": at} for name, at in moments],
        "dots": [{"name": name, "x": at, "y": value} for name, at, value in dots],
    }
    return {"title": title, "x": x, "y": y, "content": {"lines": content}}


def bars(
    title: str, x: dict[str, Any], y: dict[str, Any], names: Sequence[str], values: Sequence[float]
) -> dict[str, Any]:
    """A panel with a bar a name."""
    content = {"names": [str(name) for name in names], "values": [_number(value) for value in values]}
    return {"title": title, "x": x, "y": y, "content": {"bars": content}}


def histogram(title: str, x: dict[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """A panel with how many values fall into each of twenty stretches."""
    known = list(map(_number, values))
    low, high = min(known, default=0.0), max(known, default=1.0)
    if high <= low:
        high = low + max(abs(low), 1.0)
    counts = [0.0] * _BINS
    for value in known:
        counts[min(int((value - low) / (high - low) * _BINS), _BINS - 1)] += 1
    edges = [low + (high - low) * step / _BINS for step in range(_BINS + 1)]
    content = {"values": counts, "edges": edges}
    return {"title": title, "x": x, "y": axis("Count"), "content": {"bars": content}}


def points(
    title: str, x: dict[str, Any], y: dict[str, Any], pairs: Iterable[tuple[float, float]]
) -> dict[str, Any]:
    """A panel of dots."""
    return {"title": title, "x": x, "y": y, "content": {"points": {"points": _finite(pairs)}}}


def heat(
    rows: Sequence[str],
    columns: Sequence[str],
    shares: Sequence[Sequence[float]],
    texts: Sequence[Sequence[str]] = (),
    *,
    scale: tuple[str, str] | None = None,
    title: str = "",
    x: str = "",
    y: str = "",
) -> dict[str, Any]:
    """A coloured table; shares are from 0 to 1."""
    content = {
        "rows": list(rows),
        "columns": list(columns),
        "shares": [[_number(share) for share in row] for row in shares],
        "texts": [list(row) for row in texts],
        "scale": scale,
    }
    return {"title": title, "x": axis(x), "y": axis(y), "content": {"heat": content}}


def _finite(pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]


def _number(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0
