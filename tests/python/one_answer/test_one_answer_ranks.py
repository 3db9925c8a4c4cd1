"""A job of several ranks: the answer is about the rank that is worst, and names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from run_command import STORMLOG, command

LAUNCHER = """
import os, subprocess, sys
ranks = []
for rank in range(4):
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "4"}
    words = [sys.executable, os.path.join(os.path.dirname(__file__), "train.py")]
    ranks.append(subprocess.Popen(words, env={**os.environ, **own}))
print(*(rank.pid for rank in ranks))
sys.exit(max(rank.wait() != 0 for rank in ranks))
"""
LEAKS = """
import os, time
kept = []
def step(number):
    if os.environ["RANK"] == "2":
        kept.append(bytearray(2 << 20))
    if os.environ["RANK"] == "0" and number % 10 == 0:
        kept.append(bytearray(1 << 18))
for number in range(60):
    step(number)
    time.sleep(0.05)
"""
DIES = """
import os, resource, time
kept = []
if os.environ["RANK"] == "3":
    resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
    while True:
        kept.append(bytearray(50 << 20))
time.sleep(0.5)
"""


def job(tmp_path: Path, train: str) -> tuple[list[int], Any]:
    (tmp_path / "launch.py").write_text(LAUNCHER, encoding="utf-8")
    (tmp_path / "train.py").write_text(train, encoding="utf-8")
    words = command(tmp_path / "runs", sys.executable, str(tmp_path / "launch.py"))
    done = subprocess.run(words, capture_output=True, text=True)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 4, done.stderr
    words = [*STORMLOG, "analyze", str(tmp_path / "runs"), "--json"]
    return pids, json.loads(subprocess.run(words, capture_output=True, text=True).stdout)


def test_rank_that_leaks_is_the_answer(tmp_path: Path) -> None:
    pids, report = job(tmp_path, LEAKS)
    assert report["headline"][0].startswith(f"train.py (rank 2, pid {pids[2]}) exited 0"), report["headline"]
    worst = report["findings"][0]
    assert (worst["kind"], worst["process"]) == ("leak", pids[2])
    ranks = {one["pid"]: one["rank"] for one in report["processes"] if one["world_size"] == 4}
    assert ranks == dict(zip(pids, range(4), strict=True))


def test_rank_that_runs_out_of_memory_is_the_answer(tmp_path: Path) -> None:
    pids, report = job(tmp_path, DIES)
    assert report["headline"][0].startswith(f"train.py (rank 3, pid {pids[3]}) raised MemoryError"), report
    (failed,) = [one for one in report["processes"] if one["cause"] == "memory_error"]
    assert (failed["pid"], failed["rank"], failed["ended"]) == (pids[3], 3, "failed")
    assert pids[3] in {found["process"] for found in report["findings"] if found["kind"] == "oom"}
