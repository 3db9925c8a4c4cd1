"""A memory profile of JAX as one page: its functions with their own and their total memory.

`stormlog flamegraph` draws the same profile as a flame graph, with lines.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

__all__ = ["format_bytes", "render_jax_attributed_html"]

_ROWS = 50
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Stormlog JAX Memory</title>
<style>body{{font:14px sans-serif;margin:2em}}td,th{{padding:4px 12px;text-align:right}}
td:first-child,th:first-child{{text-align:left}}</style></head>
<body><h1>JAX memory by function</h1><p>{total} in {count} stacks</p>
<table><tr><th>Function</th><th>Own</th><th>Total</th></tr>
{rows}
</table></body></html>
"""


def format_bytes(b: float) -> str:
    """`1.50MB`, as 0.4.3 writes it."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if b < 1024.0:
            return f"{b:.2f}{unit}"
        b /= 1024.0
    return f"{b:.2f}PB"


def render_jax_attributed_html(
    profile_data: dict[str, Any], output_path: str = "jax_memory_graph.html"
) -> str:
    """The page; written to a file where one is named."""
    own: dict[str, int] = {}
    total: dict[str, int] = {}
    samples = [row for row in profile_data.get("samples", ()) if row["stack"]]
    for row in samples:
        size = int(row["values"][-1])
        own[row["stack"][-1]] = own.get(row["stack"][-1], 0) + size
        for function in set(row["stack"]):
            total[function] = total.get(function, 0) + size
    largest = sorted(total, key=lambda name: (own.get(name, 0), total[name]), reverse=True)[:_ROWS]
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{format_bytes(own.get(name, 0))}</td>"
        f"<td>{format_bytes(total[name])}</td></tr>"
        for name in largest
    )
    page = _PAGE.format(total=format_bytes(sum(own.values())), count=len(samples), rows=rows)
    if output_path:
        Path(output_path).write_text(page, encoding="utf-8")
    return page
