"""One page of a PyTorch allocator snapshot where every block has the name of its tensor.

Everything the page needs is in it and it runs no script, so it can be mailed, archived, or shown inside
another page. Names come out of the recorded program and are never put in unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from stormlog._plot.figure import Figure, axis, lines, series
from stormlog._torch.attributed_blocks import Attributed, Block, attribute
from stormlog.utils import format_bytes

__all__ = ["ATTRIBUTED_HTML_FILENAME", "render_attributed_html", "render_attributed_wandb_preview_html"]

ATTRIBUTED_HTML_FILENAME = "cuda_allocator_state_history_annotated.html"

_MOST_POINTS = 4000
_MOST_NAMES = 6
_MOST_OFFENDERS = 50
_MOST_ROWS = 1000
_MOST_SEGMENTS = 200
_MOST_PARTS = 400
_COLOURS = ("#58a6ff", "#f0883e", "#e15759", "#3fb950", "#bc8cff", "#edc949", "#ff9da7", "#76b7b2")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: flex; flex-wrap: wrap; gap: 2rem; margin: 1rem 0; }
dt { color: #888; } dd { margin: 0; font-size: 1.3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.size { text-align: right; white-space: nowrap; }
.segment { display: flex; height: 18px; background: #8883; margin: 2px 0 8px; overflow: hidden; }
.note { color: #888; } pre { margin: 0; white-space: pre-wrap; } svg { max-width: 100%; height: auto; }
"""


def render_attributed_html(snapshot: Any, tensor_index: dict[str, Any], *, device: int = 0) -> str:
    """The whole page of one device. `tensor_index` is of `build_cuda_tensor_attribution_index`."""
    found = attribute(snapshot, tensor_index, device)
    note = "" if found.has_history else "No history was recorded: this is the allocator as it was at the end."
    return _page(
        f"CUDA memory by tensor: device {device}",
        found,
        note,
        [
            _timeline(found, _MOST_POINTS, _MOST_NAMES),
            _offenders(found.blocks, _MOST_OFFENDERS),
            _active(found.blocks, _MOST_ROWS, with_stacks=True),
            _segments(found),
        ],
    )


def render_attributed_wandb_preview_html(
    snapshot: Any,
    tensor_index: dict[str, Any],
    *,
    device: int = 0,
    max_timeline_points: int = 480,
    max_marker_points: int = 80,
    max_offenders: int = 12,
    max_active_rows: int = 12,
) -> str:
    """A small page of the same, for a panel of a dashboard."""
    found = attribute(snapshot, tensor_index, device)
    if found.has_history:
        shown = min(len(found.timeline), max_timeline_points)
        note = f"Sampled preview: {shown:,} of {len(found.timeline):,} recorded events."
    else:
        note = "Preview of the allocator as it was at the end: no history was recorded."
    return _page(
        "CUDA memory by tensor",
        found,
        f"{note} The attribution artifact has the whole page.",
        [
            _timeline(found, max_timeline_points, max_marker_points),
            _offenders(found.blocks, max_offenders),
            _active(found.blocks, max_active_rows, with_stacks=False),
        ],
    )


def _page(title: str, found: Attributed, note: str, sections: Iterable[str]) -> str:
    used = ("Peak Alloc", found.peak) if found.has_history else ("Active Alloc", found.active)
    facts = [
        (used[0], format_bytes(used[1])),
        ("Reserved", format_bytes(found.reserved)),
        ("Events", f"{len(found.timeline):,}" if found.has_history else "n/a"),
        ("Segments", f"{len(found.segments):,}"),
        ("Attributed", f"{found.attributed:,}"),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<dl>{shown}</dl>\n"
        f'<p class="note">{escape(note)}</p>\n{"".join(sections)}</body>\n</html>\n'
    )


def _timeline(found: Attributed, most_points: int, most_names: int) -> str:
    if not found.timeline:
        return ""
    points = _thinned(found.timeline, most_points)
    # The largest steps up are worth a name, each name once: more than a few cover each other.
    steps: dict[str, tuple[int, float, int]] = {}
    for (_, before, _), (at, held, name) in pairwise(points):
        if name and held > before:
            steps[name] = max(steps.get(name, (0, 0.0, 0)), (held - before, at, held))
    named = sorted(steps.items(), key=lambda step: -step[1][0])[: min(most_names, _MOST_NAMES)]
    panel = lines(
        "",
        axis("Time", "seconds"),
        axis("Allocated", "bytes"),
        [series("Allocated", [(at / 1000, held) for at, held, _ in points], fill=True)],
        moments=[("OOM", at / 1000) for at in found.ooms_ms[:most_names]],
        dots=[(name, at / 1000, held) for name, (_, at, held) in named],
    )
    return f"<h2>Memory over time</h2>\n{Figure('', [panel])._repr_svg_()}\n"


def _thinned(points: Sequence[tuple[float, int, str]], most: int) -> list[tuple[float, int, str]]:
    """Of each stretch the highest point, so that no peak is lost, and the last point of all."""
    if len(points) <= max(most, 2):
        return list(points)
    stretches = max(most - 1, 1)
    edges = [len(points) * number // stretches for number in range(stretches + 1)]
    highest = [max(points[a:b], key=lambda point: point[1]) for a, b in pairwise(edges)]
    return [*highest, points[-1]]


def _offenders(blocks: Sequence[Block], most: int) -> str:
    held: dict[tuple[str, str, str], list[int]] = {}
    for block in blocks:
        held.setdefault((block.name, block.shape, block.dtype), []).append(block.size)
    ranked = sorted(held.items(), key=lambda item: -sum(item[1]))[:most]
    rows = [[*key, f"{len(sizes):,}", format_bytes(sum(sizes))] for key, sizes in ranked]
    return _table("Largest holders", ["Name", "Shape", "Dtype", "Blocks", "Size"], rows)


def _active(blocks: Sequence[Block], most: int, *, with_stacks: bool) -> str:
    titles = ["Name", "Shape", "Dtype", "Pool", *(["Allocated at"] if with_stacks else []), "Size"]
    rows = []
    for block in blocks[:most]:
        stack = ["\n".join(block.frames)] if with_stacks else []
        rows.append([block.name, block.shape, block.dtype, block.pool, *stack, format_bytes(block.size)])
    left = len(blocks) - len(rows)
    more = f'<p class="note">{left:,} smaller blocks are not shown.</p>\n' if left else ""
    return _table("Largest Active Allocations", titles, rows) + more


def _table(title: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in titles)
    body = "".join(_row(row) for row in rows)
    empty = f'<tr><td colspan="{len(titles)}" class="note">Nothing is in use.</td></tr>'
    return (
        f"<h2>{escape(title)}</h2>\n<table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body or empty}</tbody></table>\n"
    )


def _row(cells: Sequence[str]) -> str:
    *texts, size = cells
    shown = "".join(f"<td>{_cell(text)}</td>" for text in texts)
    return f'<tr>{shown}<td class="size">{escape(size)}</td></tr>\n'


def _cell(text: str) -> str:
    if "\n" not in text:
        return escape(text)
    first, _, _ = text.partition("\n")
    return f"<details><summary>{escape(first)}</summary><pre>{escape(text)}</pre></details>"


def _segments(found: Attributed) -> str:
    parts = ["<h2>Segments</h2>\n"]
    for segment in found.segments[:_MOST_SEGMENTS]:
        title = f"{segment.kind} segment at {segment.address:#x}, {format_bytes(segment.size)}"
        shown = "".join(_part(*block, segment.size) for block in segment.blocks[:_MOST_PARTS])
        parts.append(f'<div>{escape(title)}</div><div class="segment">{shown}</div>\n')
    left = len(found.segments) - _MOST_SEGMENTS
    if left > 0:
        parts.append(f'<p class="note">{left:,} more segments are not shown.</p>\n')
    return "".join(parts)


def _part(size: int, is_used: bool, name: str, whole: int) -> str:
    share = size / whole * 100 if whole else 0
    colour = _COLOURS[sum(map(ord, name)) % len(_COLOURS)] if is_used else "transparent"
    title = escape(f"{name or 'free'}, {format_bytes(size)}", quote=True)
    return f'<span title="{title}" style="width:{share:.3f}%;background:{colour}"></span>'
