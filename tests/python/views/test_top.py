"""`stormlog top`: the ranks of real jobs, living and dead, as text, as JSON and on a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyte")
from pseudo_terminal import PATIENCE, Terminal

STORMLOG = [sys.executable, "-m", "stormlog"]
# Three of four ranks; each waits for its input to end, and the last aborts.
JOB = """
import os, subprocess, sys
if len(sys.argv) == 1:
    job = dict(os.environ, WORLD_SIZE="4", TORCHELASTIC_RUN_ID="job-7", TORCHELASTIC_RESTART_COUNT="1")
    envs = [dict(job, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(3)]
    children = [subprocess.Popen([sys.executable, __file__, "rank"], stdin=-1, env=env) for env in envs]
    sys.stdin.read()
    for child in children:
        child.stdin.close()
        child.wait()
else:
    sys.stdin.read()
    if os.environ["RANK"] == "2":
        os.abort()
"""


def look(root: Path) -> dict[str, Any]:
    """What `top --json` says."""
    words = [*STORMLOG, "top", "--json", str(root)]
    found: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    folder = tmp_path_factory.mktemp("top")
    (folder / "train.py").write_text(JOB)
    run = [*STORMLOG, "run", "-q", "--no-heap", "--no-gpu", "--no-why", "--dir", str(folder / "runs")]
    process = subprocess.Popen([*run, sys.executable, str(folder / "train.py")], stdin=subprocess.PIPE)
    until = time.monotonic() + PATIENCE
    while not (folder / "runs").is_dir() or len(look(folder / "runs")["ranks"]) < 3:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.1)
    yield folder / "runs", process
    assert process.stdin
    process.stdin.close()
    process.wait(PATIENCE)


def test_living_job_has_its_ranks_and_names_the_missing(job: tuple[Path, Any]) -> None:
    found = look(job[0])
    (only,) = found["jobs"]
    assert (only["job"], only["world_size"], only["missing_ranks"]) == ("job-7", 4, [3])
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2]
    for rank in found["ranks"]:
        assert (rank["state"], rank["attempt"], rank["memory"]) == ("running", 1, "host")
        assert rank["peak_bytes"] >= rank["now_bytes"] > 0
        assert set(rank) >= {"time_to_limit_seconds", "growth_bytes_per_hour", "host", "run", "pid"}
    (run,) = found["runs"]
    assert (run["kind"], run["state"], run["job_id"]) == ("run", "running", "job-7")
    assert found["host"]["total_bytes"] > found["host"]["available_bytes"] > 0


def test_screen_begins_with_the_ranks_and_opens_the_machine(job: tuple[Path, Any]) -> None:
    terminal = Terminal([*STORMLOG, "top", str(job[0])], 100, 30)
    try:
        terminal.wait_for("3 of 4 ranks")
        assert "missing ranks: 3" in terminal.text()
        terminal.press("1")
        terminal.wait_for("1 running")
        terminal.press("q")
        assert terminal.leave() == 0
    finally:
        terminal.close()


def test_dead_job_opens_the_same_way(job: tuple[Path, subprocess.Popen[bytes]]) -> None:
    root, process = job
    assert process.stdin
    process.stdin.close()
    process.wait(PATIENCE)
    found = look(root)
    (only,) = found["jobs"]
    assert (only["is_living"], only["missing_ranks"]) == (False, [3])
    assert [rank["state"] for rank in found["ranks"]] == ["completed", "completed", "failed"]
    assert all(rank["peak_bytes"] > 0 and rank["now_bytes"] is None for rank in found["ranks"])
    text = subprocess.run([*STORMLOG, "top", str(root)], check=True, capture_output=True, text=True).stdout
    assert "job job-7 · 3 of 4 ranks · ended" in text, "not a terminal: as --once"
    assert "missing ranks: 3" in text and "0 running, 1 ended" in text


def test_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    words = [*STORMLOG, "top", "--once", str(tmp_path / "none")]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.returncode != 0 and "not a directory" in found.stderr
