"""`analyze` on what `run --heap` leaves: the growth of a program is printed with the line that grew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"
LEAK = """
import time
kept = []
def remember():
    kept.append(bytearray(b"x" * 2_000_000))
def main():
    for _ in range(40):
        remember()
        time.sleep(0.05)
main()
"""
STARVED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
first = bytearray(50_000_000)
second = bytearray(600_000_000)
"""
# One of four ranks; the third keeps 400 MB more.
RANK = """
import os, time
def build():
    return bytearray(b"x" * 20_000_000)
def dispatch():
    return [bytearray(b"x" * 1_000_000) for _ in range(400 if os.environ["RANK"] == "2" else 2)]
kept = [build(), dispatch()]
time.sleep(1)
"""
CALM = """
import time
for _ in range(30):
    passing = bytearray(5_000_000)
    time.sleep(0.02)
    del passing
"""


def stormlog(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *arguments]
    known = {**os.environ, **env}
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=120)


def run(folder: Path, text: str) -> Path:
    (folder / "program.py").write_text(text)
    stormlog(folder, "run", "--heap", "--quiet", "--interval", "0.05", "--dir", "runs", "program.py")
    (capture,) = (folder / "runs").rglob("heap.bin")
    return capture


def test_growth_is_reported_with_its_line(tmp_path: Path) -> None:
    capture = run(tmp_path, LEAK)
    whole = stormlog(tmp_path, "analyze", "runs")
    assert whole.returncode == 3, whole.stdout + whole.stderr
    assert "program.py:5 remember ← program.py:8 main" in whole.stdout
    alone = stormlog(tmp_path, "analyze", str(capture))
    assert alone.returncode == 3, alone.stdout + alone.stderr
    assert "program.py:5 remember keeps" in alone.stdout and "1 heap capture" in alone.stdout


def test_outlier_rank_is_reported_with_the_line_that_differs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RANK)
    for rank in "0123":
        # Each in a run of its own, as on four machines.
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "night"}
        stormlog(tmp_path, "run", "--heap", "--quiet", "--dir", "runs", "program.py", **names)
    printed = stormlog(tmp_path, "analyze", "runs").stdout
    assert "rank 2 peaks" in printed and "above the median of 4 ranks" in printed, printed
    (line,) = (line for line in printed.splitlines() if line.strip().startswith("it holds"))
    assert "program.py:6 dispatch" in line, printed


def test_a_request_that_got_no_memory_is_critical(tmp_path: Path) -> None:
    capture = run(tmp_path, STARVED)
    done = stormlog(tmp_path, "analyze", str(capture))
    assert done.returncode == 3, done.stderr
    assert "CRITICAL" in done.stdout and "program.py:5" in done.stdout


def test_a_calm_program_gives_no_finding(tmp_path: Path) -> None:
    capture = run(tmp_path, CALM)
    done = stormlog(tmp_path, "analyze", str(capture))
    assert (done.returncode, "nothing wrong in 1 heap capture" in done.stdout) == (0, True), done.stdout
