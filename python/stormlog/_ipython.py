"""``%load_ext stormlog`` gives the cell magic ``%%stormlog_heap``: records a cell, shows its flame graph."""

from __future__ import annotations

import argparse
import importlib
import tempfile
from pathlib import Path
from typing import Any

_HEIGHT = 720


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="%%stormlog_heap", add_help=False)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--trace-python-allocators", action="store_true")
    parser.add_argument("--leaks", action="store_true")
    parser.add_argument("--temporary", action="store_true")
    parser.add_argument("--inverted", action="store_true")
    parser.add_argument("-o", "--output")
    return parser


def record_cell(line: str, cell: str, run: Any) -> str:
    """Runs ``cell`` under a heap recording and returns the page that shows it."""
    from stormlog import _native, heap

    options = _arguments().parse_args(line.split())
    with tempfile.TemporaryDirectory(prefix="stormlog-heap-") as scratch:
        capture = Path(scratch) / "cell.bin"
        with heap.record(
            capture, native=options.native, trace_python_allocators=options.trace_python_allocators
        ):
            run(cell)
        mode = "leaks" if options.leaks else "temporary" if options.temporary else "peak"
        page = _native.heap_flamegraph(str(capture), mode, options.inverted)
        if options.output:
            Path(options.output).write_text(page, encoding="utf-8")
    return page


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython."""

    def stormlog_heap(line: str, cell: str) -> None:
        import html

        # Only there when IPython is, and it calls this.
        display = importlib.import_module("IPython.display")

        def run(source: str) -> None:
            shell.run_cell(source).raise_error()

        page = record_cell(line, cell, run)
        frame = (
            f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
        )
        # `HTML` would warn of the frame, and `IFrame` wants an address: the page has none.
        display.display({"text/html": frame, "text/plain": "the flame graph of this cell"}, raw=True)

    shell.register_magic_function(stormlog_heap, magic_kind="cell", magic_name="stormlog_heap")
