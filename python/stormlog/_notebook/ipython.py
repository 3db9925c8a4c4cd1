"""``%load_ext stormlog`` gives the cell magic ``%%stormlog_heap``: records a cell, shows its flame graph.

Must never hide what the cell did: its error stays its own and is reported once, and what it held is shown all
the same.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import shlex
import tempfile
from pathlib import Path
from typing import Any, NoReturn

_HEIGHT = 720


class _Arguments(argparse.ArgumentParser):
    """Tells of a wrong word the way IPython does, and leaves the session alone."""

    def error(self, message: str) -> NoReturn:
        raise _usage_error(f"{message}; {self.format_usage().strip()}")


def _usage_error(text: str) -> Exception:
    # Only there when IPython is, and it calls this.
    error: Exception = importlib.import_module("IPython.core.error").UsageError(text)
    return error


def _arguments() -> argparse.ArgumentParser:
    parser = _Arguments(prog="%%stormlog_heap", add_help=False)
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

    options = _arguments().parse_args(shlex.split(line))
    with tempfile.TemporaryDirectory(prefix="stormlog-heap-") as scratch:
        capture = Path(scratch) / "cell.bin"
        with heap.record(
            capture, native=options.native, trace_python_allocators=options.trace_python_allocators
        ):
            run(cell)
        mode = "leaks" if options.leaks else "temporary" if options.temporary else "peak"
        page = _native.heap.heap_flamegraph(str(capture), mode, options.inverted)
        if options.output:
            Path(options.output).write_text(page, encoding="utf-8")
    return page


def _cannot_wait(shell: Any, cell: str) -> bool:
    """Whether the cell awaits something where the loop that would run it is running this magic."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))


def _shown(error: BaseException) -> BaseException:
    """The error of a cell, whose traceback IPython has shown and is not to show again."""

    def nothing() -> list[str]:
        del error._render_traceback_  # type: ignore[attr-defined]
        return []

    error._render_traceback_ = nothing  # type: ignore[attr-defined]
    return error


def load_ipython_extension(shell: Any) -> None:
    """Register `%%stormlog_heap`; IPython calls this for `%load_ext stormlog`."""

    def stormlog_heap(line: str, cell: str) -> None:
        """Records every allocation of the cell and shows what held the memory at its peak.

        ``--leaks`` what it left, ``--temporary`` what was freed right after, ``--native`` with the frames
        of C, C++ and Rust, ``--trace-python-allocators`` every Python object, ``--inverted`` from the
        allocating functions down, ``-o FILE`` writes the page to a file too.
        """
        import html

        if _cannot_wait(shell, cell):
            advice = "put `with stormlog.heap.record('cell.bin'):` around it instead"
            raise _usage_error(f"a cell that awaits cannot be run by a magic; {advice}")
        # Only there when IPython is, and it calls this.
        display = importlib.import_module("IPython.display")
        results: list[Any] = []
        page = record_cell(line, cell, lambda source: results.append(shell.run_cell(source)))
        (result,) = results
        if result.error_before_exec is not None:
            raise _shown(result.error_before_exec)
        frame = (
            f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
        )
        # `HTML` would warn of the frame, and `IFrame` wants an address: the page has none.
        display.display({"text/html": frame, "text/plain": "the flame graph of this cell"}, raw=True)
        if result.error_in_exec is not None:
            raise _shown(result.error_in_exec)

    shell.register_magic_function(stormlog_heap, magic_kind="cell", magic_name="stormlog_heap")
