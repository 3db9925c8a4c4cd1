"""A daemon outlives its run: the limit of its capture holds without a supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from heap_captures import LIMIT, used
from run_command import program

SECONDS = os.environ.get("STORMLOG_TEST_DAEMON_SECONDS", "2")


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
