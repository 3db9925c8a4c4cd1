"""`stormlog run` when the supervisor is killed too: the next command over the directory finishes the work."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from run_command import cgroup, command, in_cgroup, is_gone, newest, pid_of, program, stormlog, until


def abandon(directory: Path, words: list[str]) -> None:
    """Starts the run, kills its supervisor while the program lives, and waits for the program's own end."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(directory.glob("*/rank*/memory_map.json")))
        child = pid_of(directory)
        running.send_signal(signal.SIGKILL)
    # It lives as long as its supervisor does, and a little longer.
    until(lambda: is_gone(child))


def test_an_oom_kill_is_still_named(tmp_path: Path) -> None:
    with cgroup(120 << 20) as group:
        abandon(
            tmp_path, in_cgroup(group, command(tmp_path, *program("waits_for_its_parents_end.py", "grow")))
        )
    bundle = newest(tmp_path)
    assert bundle["cause"] == "cgroup_oom_kill", bundle["evidence"]["notes"]
    assert bundle["limit_bytes"] == 120 << 20
    assert bundle["session_status"] == "interrupted"
    assert bundle["evidence"]["memory_map"], "the last look was kept"


def test_the_lines_that_held_memory_are_still_named(tmp_path: Path) -> None:
    abandon(tmp_path, command(tmp_path, *program("waits_for_its_parents_end.py", "raise")))
    held = newest(tmp_path)["held"]
    assert held[0]["file"].endswith("waits_for_its_parents_end.py") and held[0]["line"] == 8
    assert held[0]["memory"] == "host" and abs(held[0]["bytes"] - (20 << 20)) < 1 << 20


def test_exception_is_reported_after_a_resume(tmp_path: Path) -> None:
    abandon(tmp_path, command(tmp_path, *program("waits_for_its_parents_end.py", "raise")))
    bundle = newest(tmp_path)
    assert (bundle["cause"], bundle["exit_code"]) == ("exit", 1)
    assert bundle["exception_type"] == "RuntimeError"


def test_a_capture_that_was_half_written_goes(tmp_path: Path) -> None:
    waits = program("waits_for_its_parents_end.py", "raise")
    abandon(tmp_path, command(tmp_path, *waits, options=("--heap",)))
    (folder,) = tmp_path.glob("*/heap")
    # The process that waited for the supervisor's end completes the capture.
    until(lambda: not list(folder.glob("*.live")))
    # Where a kill in the midst of sealing leaves it.
    half = folder / "4711.bin.tmp"
    half.write_bytes(b"half a capture")
    whole = sorted(path for path in folder.iterdir() if path != half)
    assert whole, "the recording itself"
    assert len(stormlog("sessions", str(tmp_path))) == 1
    assert sorted(folder.iterdir()) == whole


def test_surviving_process_is_not_called_dead(tmp_path: Path) -> None:
    words = command(tmp_path, *program("holds_memory.py"))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until(lambda: list(tmp_path.glob("*/rank*/memory_map.json")))
        child = pid_of(tmp_path)
        running.kill()
    assert stormlog("oom", "list", str(tmp_path)) == []
    (row,) = stormlog("sessions", str(tmp_path))
    assert row["status"] == "running", "the program is"
    os.kill(child, signal.SIGKILL)
