"""A daemon outlives its run: the limit of its capture holds without a supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from test_run import program

LIMIT = 5_000_000
SECONDS = os.environ.get("STORMLOG_TEST_DAEMON_SECONDS", "2")


def used(run: Path) -> int:
    """Bytes on disk of the largest capture, its finished and its live file together."""
    captures: dict[str, int] = {}
    for path in run.rglob("*.bin*"):
        try:
            blocks = path.stat().st_blocks
        except FileNotFoundError:
            continue  # renamed or removed between the listing and now
        name = path.name.removesuffix(".live")
        captures[name] = captures.get(name, 0) + blocks * 512
    return max(captures.values(), default=0)


def test_size_limit_holds_for_a_daemon_without_a_supervisor(tmp_path: Path) -> None:
    report = tmp_path / "report"
    words = [sys.executable, "-m", "stormlog", "run", "-q", "--heap", "--max-size", "5MB"]
    words += ["--dir", str(tmp_path / "runs"), "--", *program("daemon_allocates.py", str(report), SECONDS)]
    assert subprocess.run(words, capture_output=True).returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    most = 0
    while not (report.exists() and "done" in report.read_text(encoding="utf-8")):
        most = max(most, used(run))
        time.sleep(0.02)
    most = max(most, used(run))
    assert 0 < most <= LIMIT
