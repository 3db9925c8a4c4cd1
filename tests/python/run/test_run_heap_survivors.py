"""Programs that outlive their supervisor: their captures stay bounded, and right to the last block."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from heap_captures import LIMIT, line_of, live_files, stats, used
from run_command import STORMLOG, is_gone, pid_of, program, until

NAME = "churns_when_told.py"
#: Far more records than the bound has room for.
ROUNDS = 400_000
HELD, LARGE, SMALL = 200, 50_000, 5_000
#: Of a bytes object beside its content.
HEAD = 33


def line_bytes(rows: list[dict[str, Any]], text: str) -> int:
    number = line_of(NAME, text)
    places = [(Path(row["place"]["file"]).name, row["place"]["line"], row["own_bytes"]) for row in rows]
    return sum(size for name, line, size in places if (name, line) == (NAME, number))


@pytest.mark.parametrize("mode", [(), ("--aggregate",)])
def test_a_capture_stays_bounded_and_exact_after_its_supervisor_was_killed(
    tmp_path: Path, mode: tuple[str, ...]
) -> None:
    words = [*STORMLOG, "run", "-q", "--heap", "--max-size", "5MB", *mode, "--dir", str(tmp_path), "--"]
    with subprocess.Popen(
        [*words, *program(NAME)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin and running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(tmp_path.glob("*/heap/*.live")))
        (run,) = tmp_path.iterdir()
        child = pid_of(tmp_path)
        running.send_signal(signal.SIGKILL)
        running.wait()
        most = 0
        for _ in range(2):
            print(ROUNDS, file=running.stdin, flush=True)
            # It is read while the program works: the pipe holds the line until then.
            while not is_ready(running):
                most = max(most, used(run))
            assert running.stdout.readline() == "done\n"
        os.kill(child, signal.SIGKILL)
    until(lambda: is_gone(child))
    until(lambda: not live_files(run))
    assert 0 < most <= LIMIT
    (capture,) = (path for path in run.rglob("*.bin") if str(child) in str(path))
    found = stats(capture)
    assert found["lost_events"] == 0
    assert found["total_allocations"] > 2 * ROUNDS
    done = subprocess.run([*STORMLOG, "leaks", str(capture), "--json"], capture_output=True, check=True)
    rows = json.loads(done.stdout)
    assert line_bytes(rows, "bytes(LARGE)") == HELD * (LARGE + HEAD)
    assert line_bytes(rows, "bytes(SMALL)") == 2 * HELD * (SMALL + HEAD)


def is_ready(running: subprocess.Popen[str]) -> bool:
    assert running.stdout
    readable, _, _ = select.select([running.stdout], [], [], 0.05)
    return bool(readable)


def test_a_finisher_ends_with_the_last_process_that_writes(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "-q", "--dir", str(tmp_path), "--", *program(NAME)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin and running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(tmp_path.glob("*/heap/*.live")))
        (run,) = tmp_path.iterdir()
        child = pid_of(tmp_path)
        running.send_signal(signal.SIGKILL)
        running.wait()
        until(lambda: len(finishers(run)) == 1)
        os.kill(child, signal.SIGKILL)
        until(lambda: not finishers(run))
    assert not live_files(run)


def test_a_run_that_is_over_leaves_no_process(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "-q", "--dir", str(tmp_path), "--", "true"]
    assert subprocess.run(words).returncode == 0
    (run,) = tmp_path.iterdir()
    assert not finishers(run)
    assert not live_files(run), "a small capture is complete when the command returns"


def finishers(run: Path) -> list[int]:
    """Processes with the run's directory as their last word."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"finish-captures" in words and os.fsencode(run) in words:
            found.append(int(entry.name))
    return found
