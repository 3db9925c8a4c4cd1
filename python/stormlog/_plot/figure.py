"""A picture that has been described and not yet drawn: what the visualizers give back.

It answers to what programs written for 0.4.3 call on matplotlib's and plotly's figures. The drawing is native
and needs neither of them; only what a program asks of a figure beyond drawing (`fig.axes`, `update_layout`)
makes one, where the package is installed. Must never hold on to what was drawn: a description is numbers
and names.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from stormlog import _native

__all__ = ["Figure", "axis", "bars", "heat", "histogram", "lines", "points", "series"]

_FORMS = {".png": "png", ".svg": "svg", ".html": "html", ".htm": "html"}
_BINS = 20


class Figure:
    """A picture: `save` it, or let a notebook show it."""

    def __init__(
        self,
        title: str,
        panels: Sequence[dict[str, Any]],
        *,
        subtitle: str = "",
        columns: int = 1,
        interactive: bool = False,
    ) -> None:
        self.title = title
        self._described = {"title": title, "subtitle": subtitle, "columns": columns, "panels": list(panels)}
        # Where 0.4.3 gave a plotly figure; elsewhere it gave one of matplotlib's.
        self._is_interactive = interactive
        # Figures that a program works on. What it saves and shows from then on is what it made of them.
        self._matplotlib: Any = None
        self._plotly: Any = None

    def to_matplotlib(self) -> Any:
        """The same picture as a `matplotlib.figure.Figure`, a new one each time; ImportError without."""
        from stormlog._plot.convert import to_matplotlib

        return to_matplotlib(self._described)

    def to_plotly(self) -> Any:
        """The same picture as a `plotly.graph_objects.Figure`, a new one each time; ImportError without."""
        from stormlog._plot.convert import to_plotly

        return to_plotly(self._described)

    def __getattr__(self, name: str) -> Any:
        """What programs touch of a figure of matplotlib or plotly."""
        absent = ""
        if not name.startswith("_"):
            for made in self._makers():
                try:
                    figure = made()
                except ImportError as error:
                    absent = f" ({error})"
                    continue
                if hasattr(figure, name):
                    return getattr(figure, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{absent}")

    def _makers(self) -> Sequence[Callable[[], Any]]:
        both = (self._kept_matplotlib, self._kept_plotly)
        return both[::-1] if self._is_interactive else both

    def _kept_matplotlib(self) -> Any:
        if self._matplotlib is None:
            self._matplotlib = self.to_matplotlib()
        return self._matplotlib

    def _kept_plotly(self) -> Any:
        if self._plotly is None:
            self._plotly = self.to_plotly()
        return self._plotly

    def save(self, path: str | os.PathLike[str], *, scale: float = 2.0) -> str:
        """Writes the file its name asks for (.png, .svg, .html; .png without any); gives its path."""
        file = Path(path)
        if not file.suffix:
            file = file.with_name(file.name + ".png")
        file.write_bytes(self._drawn(_form(file.suffix, file.name), scale))
        return str(file)

    def savefig(
        self, fname: str | os.PathLike[str] | IO[bytes], dpi: float | None = None, **options: Any
    ) -> None:
        """As matplotlib's, into a file or a stream; 100 dots an inch are one pixel a unit."""
        if self._matplotlib is not None:
            self._matplotlib.savefig(fname, dpi=dpi or 200, **options)
            return
        scale = 2.0 if dpi is None else max(dpi / 100.0, 0.5)
        if not isinstance(fname, (str, os.PathLike)):
            fname.write(self._drawn(_form(options.get("format", "png")), scale))
        else:
            self.save(fname, scale=scale)

    def write_html(self, file: str | os.PathLike[str] | IO[str], **options: Any) -> None:
        """As plotly's: one interactive page, with everything it needs inside."""
        if self._plotly is not None:
            self._plotly.write_html(file, **options)
        elif not isinstance(file, (str, os.PathLike)):
            file.write(self.to_html())
        else:
            Path(file).write_bytes(self._drawn("html", 1.0))

    def write_image(self, file: str | os.PathLike[str] | IO[bytes], **options: Any) -> None:
        """As plotly's: a PNG or an SVG."""
        if self._plotly is not None:
            self._plotly.write_image(file, **options)
        elif not isinstance(file, (str, os.PathLike)):
            file.write(self._drawn(_form(options.get("format", "png")), 2.0))
        else:
            self.save(file)

    def to_html(self, **options: Any) -> str:
        """The interactive page."""
        if self._plotly is not None:
            return str(self._plotly.to_html(**options))
        return self._drawn("html", 1.0).decode()

    def show(self, *arguments: Any, **options: Any) -> Any:
        """Opens the page in a browser and gives its address; a notebook shows the figure by itself."""
        if self._plotly is not None:
            return self._plotly.show(*arguments, **options)
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


def _form(ending: str, of: str = "format") -> str:
    form = _FORMS.get(f".{ending.lower().removeprefix('.')}")
    if form is None:
        raise ValueError(f"{of}: pictures are .png, .svg or .html, not {ending}")
    return form


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
