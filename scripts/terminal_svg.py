"""A terminal's screen as an SVG: text with its colours, one element a row and colour."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby

import pyte

CELL, LINE, SIZE = 8.4, 18, 14
#: The colours of a light terminal by the names that pyte gives them.
COLOURS = {
    "default": "#1f1f1f",
    "black": "#1f1f1f",
    "red": "#b3261e",
    "green": "#2e7d32",
    "brown": "#9a6700",
    "blue": "#0b57d0",
    "magenta": "#8e24aa",
    "cyan": "#00838f",
    "white": "#757575",
    "brightblack": "#757575",
}
#: Bars from one eighth to eight eighths of a line; a font would leave gaps between the lines.
BARS = "▁▂▃▄▅▆▇█"
Style = tuple[str, str, bool]


def colour(name: str, otherwise: str) -> str:
    """A colour of pyte's: a name, or six digits."""
    if name == "default":
        return otherwise
    return COLOURS.get(name, f"#{name}" if len(name) == 6 else otherwise)


def style(cell: pyte.screens.Char) -> Style:
    """Text colour, background, bold."""
    text, behind = colour(cell.fg, COLOURS["default"]), colour(cell.bg, "")
    return (behind or "#ffffff", text, cell.bold) if cell.reverse else (text, behind, cell.bold)


def elements(screen: pyte.Screen) -> Iterator[str]:
    """The rectangles and texts of a screen."""
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        for (text, behind, bold), group in groupby(enumerate(cells), key=lambda pair: style(pair[1])):
            run = list(group)
            start, shown = run[0][0], "".join(cell.data for _, cell in run)
            x, width = start * CELL, len(run) * CELL
            if behind:
                area = f'x="{x:.1f}" y="{row * LINE}" width="{width:.1f}" height="{LINE}"'
                yield f'<rect {area} fill="{behind}"/>'
            weight = ' font-weight="bold"' if bold else ""
            for bar in re.finditer(rf"([{BARS}])\1*", shown):
                high = (BARS.index(bar[1]) + 1) * LINE / 8
                area = f'x="{x + bar.start() * CELL:.1f}" y="{(row + 1) * LINE - high:.2f}"'
                yield f'<rect {area} width="{len(bar[0]) * CELL:.1f}" height="{high:.2f}" fill="{text}"/>'
            for word in re.finditer(rf"[^\s{BARS}]+(?: [^\s{BARS}]+)*", shown):
                # A fixed length keeps columns aligned whatever font there is.
                place = f'x="{x + word.start() * CELL:.1f}" y="{row * LINE + 13}"'
                length = f'textLength="{len(word[0]) * CELL:.1f}"'
                yield f'<text {place} {length} fill="{text}"{weight}>{escape(word[0])}</text>'


def svg(screen: pyte.Screen) -> str:
    """The whole picture."""
    width, height = screen.columns * CELL, screen.lines * LINE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 -12 {width + 24:.0f} {height + 24}" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{SIZE}">'
    )
    frame = f'<rect x="-12" y="-12" width="{width + 24:.0f}" height="{height + 24}" rx="8" fill="#fdfcf8"/>'
    return "\n".join([head, frame, *elements(screen), "</svg>\n"])
