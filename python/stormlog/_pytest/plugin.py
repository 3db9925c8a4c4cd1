"""Memory limits for tests.

    @pytest.mark.limit_memory("24 MB")
    def test_small(): ...

    @pytest.mark.limit_leaks("1 MB")
    def test_keeps_nothing(): ...

``--stormlog-heap`` records every test and prints the ones that allocated most. Without a mark and without the
option this plugin does nothing at all.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

#: The marks and the keywords they know.
_OWN_MARKS: dict[str, tuple[str, ...]] = {"limit_memory": (), "limit_leaks": ("filter_fn",)}
_FIGURES = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stormlog")
    group.addoption(
        "--stormlog-heap", action="store_true", help="record the heap of every test and print the largest"
    )
    group.addoption("--stormlog-heap-dir", metavar="DIR", help="keep the captures in DIR")
    group.addoption("--stormlog-heap-native", action="store_true", help="with the frames of C, C++ and Rust")
    group.addoption(
        "--stormlog-heap-top", type=int, default=5, metavar="N", help="tests and lines to print (default 5)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "limit_memory(limit): fail the test when its heap peaks above limit, such as '24 MB'"
    )
    config.addinivalue_line(
        "markers",
        "limit_leaks(limit, *, filter_fn=None): fail the test when a call stack leaves more than limit",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    # A limit that is not a size is an error before the test runs.
    for mark in _marks(item):
        _limit(mark)


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    wanted = bool(item.config.getoption("--stormlog-heap"))
    # Another plugin has marks of these names; where it is at work, they are its own.
    if item.config.pluginmanager.hasplugin("memray_manager") and not wanted:
        return []
    return [mark for name in _OWN_MARKS for mark in item.iter_markers(name)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    marks = _marks(item)
    if not marks and not item.config.getoption("--stormlog-heap"):
        yield
        return
    from stormlog import heap

    if heap.is_recording():
        by = "the process is being recorded already, by `stormlog run --heap`, `attach` or its own code"
        warnings.warn(pytest.PytestWarning(f"the heap of this test is not measured: {by}"), stacklevel=1)
        yield
        return
    leaks = any(mark.name == "limit_leaks" for mark in marks)
    keep = item.config.getoption("--stormlog-heap-dir")
    with tempfile.TemporaryDirectory(prefix="stormlog-heap-") as scratch:
        folder = Path(keep) if keep else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        capture = folder / (_file_name(item.nodeid) + ".bin")
        native = bool(item.config.getoption("--stormlog-heap-native"))
        heap.start(capture, native=native, trace_python_allocators=leaks, overwrite=True)
        try:
            outcome = yield
        finally:
            heap.stop()
        figures = heap.stats(capture)
        item.stash[_FIGURES] = figures
        if outcome.excinfo is None:
            problem = "\n".join(text for text in (_broken(mark, figures, capture) for mark in marks) if text)
            if problem:
                outcome.force_exception(pytest.fail.Exception(problem, pytrace=False))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, None]:
    outcome = yield
    if call.when == "call" and _FIGURES in item.stash:
        figures = item.stash[_FIGURES]
        # With several workers the report is what gets to the one that prints, as JSON.
        shown = {name: figures[name] for name in ("peak_bytes", "total_allocations")}
        top = int(item.config.getoption("--stormlog-heap-top"))
        outcome.get_result().stormlog_heap = shown | {"top_by_size": figures["top_by_size"][:top]}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    results = [
        (report.nodeid, report.stormlog_heap) for report in reports if hasattr(report, "stormlog_heap")
    ]
    if not results or not config.getoption("--stormlog-heap"):
        return
    top = int(config.getoption("--stormlog-heap-top"))
    terminalreporter.section("stormlog: heap by test")
    for name, figures in sorted(results, key=lambda result: -result[1]["peak_bytes"])[:top]:
        terminalreporter.write_line(
            f"{_say(figures['peak_bytes']):>12} peak  {figures['total_allocations']:>9} allocations  {name}"
        )
        for row in figures["top_by_size"][:top]:
            terminalreporter.write_line(
                f"    {_say(row['bytes']):>12}  {row['function']}  {row['file']}:{row['line']}"
            )


def _broken(mark: pytest.Mark, figures: dict[str, Any], capture: Path) -> str | None:
    limit = _limit(mark)
    if mark.name == "limit_memory":
        return _over_memory(limit, mark.args[0], figures)
    return _over_leaks(limit, mark.args[0], mark.kwargs.get("filter_fn"), capture)


def _over_memory(limit: int, text: object, figures: dict[str, Any]) -> str | None:
    if figures["peak_bytes"] <= limit:
        return None
    lines = [f"The test's heap peaked at {_say(figures['peak_bytes'])}, its limit is {text}. At the peak:"]
    lines += [
        f"  {_say(row['bytes']):>12}  {row['function']}  {row['file']}:{row['line']}"
        for row in _at_peak(figures)
    ]
    return "\n".join(lines)


def _at_peak(figures: dict[str, Any]) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = figures.get("peak_by_size") or figures["top_by_size"]
    return rows[:5]


def _over_leaks(
    limit: int, text: object, keep: Callable[[tuple[tuple[str, str, int], ...]], bool] | None, capture: Path
) -> str | None:
    from stormlog import _native

    lines = []
    for row in _native.heap.heap_stacks(capture, "leaks"):
        stack = tuple((frame.function, frame.file, frame.line) for frame in row.stack)
        if row.own_bytes > limit and (keep is None or keep(stack)):
            lines.append(f"  {_say(row.own_bytes):>12} in {row.count} allocations")
            lines += [f"      {function}  {file}:{line}" for function, file, line in stack[:8]]
    if not lines:
        return None
    return "\n".join([f"The test left memory behind, more than {text} from one call stack:", *lines])


def _limit(mark: pytest.Mark) -> int:
    from stormlog import _native

    text = mark.args[0] if mark.args else None
    size = text if isinstance(text, int) else _native.heap.parse_size(str(text))
    if size is None:
        given = ", ".join(map(repr, mark.args))
        pytest.fail(f"@pytest.mark.{mark.name}({given}) needs a size, such as '24 MB'", pytrace=False)
    unknown = ", ".join(sorted(set(mark.kwargs) - set(_OWN_MARKS[mark.name])))
    if unknown:
        pytest.fail(
            f"@pytest.mark.{mark.name} has no argument {unknown}; every thread is measured", pytrace=False
        )
    return size


def _say(size: int) -> str:
    from stormlog.utils import format_bytes

    return format_bytes(size)


def _file_name(nodeid: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in nodeid)[-180:]
