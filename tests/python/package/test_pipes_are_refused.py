"""Readers of the Python API refuse a named pipe at once: `open` would wait for its other end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

READERS = {
    "load_report": "from stormlog.report import load_report; load_report(pathlib.Path(sys.argv[1]))",
    "load_results": (
        "from stormlog.context_profiler import MemoryProfiler; MemoryProfiler.load_results(None, sys.argv[1])"
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_named_pipe_is_refused(reader: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    done = subprocess.run(
        [sys.executable, "-c", "import pathlib, sys; " + READERS[reader], str(pipe)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "regular file" in done.stderr


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_is_named(reader: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pathlib, sys; " + READERS[reader], str(tmp_path / "gone.json")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr and "gone.json" in done.stderr
