"""`stormlog run`: how workers and daemons end while the program lives on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from run_command import STORMLOG, cgroup, command, in_cgroup, pid_of, program, stormlog

ALWAYS = ("--bundle", "always")


def finish(
    directory: Path, *words: str, before: list[str] | None = None, options: tuple[str, ...] = ()
) -> str:
    """Runs to a good end; what the program printed."""
    run = command(directory, *words, options=options)
    done = subprocess.run([*(before or []), *run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bundle_of(directory: Path, pid: int) -> Any:
    (row,) = [row for row in stormlog("oom", "list", str(directory)) if f"-pid{pid}/" in row["path"]]
    return stormlog("oom", "show", row["path"])


def sessions(directory: Path) -> dict[int, Any]:
    return {row["pid"]: row for row in stormlog("sessions", str(directory))}


def test_a_rank_met_before_its_exec_is_recorded_as_what_it_becomes(tmp_path: Path) -> None:
    child = int(finish(tmp_path, *program("becomes_a_rank.py")))
    row = sessions(tmp_path)[child]
    assert (row["rank"], row["local_rank"], row["world_size"]) == (3, 1, 4)
    (directory,) = tmp_path.glob(f"*/*-pid{child}")
    assert directory.name == f"rank3-pid{child}"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_killed_worker_leaves_a_bundle_while_its_parent_lives(tmp_path: Path, method: str) -> None:
    worker = int(finish(tmp_path, *program("worker_dies.py", method, "kill")))
    rows = sessions(tmp_path)
    assert rows[pid_of(tmp_path)]["status"] == "completed"
    assert (rows[worker]["status"], rows[worker]["event_count"] > 3) == ("interrupted", True)
    bundle = bundle_of(tmp_path, worker)
    assert (bundle["cause"], bundle["signal"], bundle["exit_code"]) == ("sigkill", signal.SIGKILL, None)
    assert bundle["session_status"] == "interrupted"
    assert bundle["peak_rss_bytes"] > 20 << 20
    holders = [row["place"] for row in bundle["evidence"]["held_by"]]
    assert any(f"pid {worker}" in place for place in holders), holders
    (directory,) = tmp_path.iterdir()
    record = json.loads((directory / "run.json").read_text())
    assert record["status"] == "completed"
    assert {row["pid"]: row["cause"] for row in record["processes"]}[worker] == "sigkill"


@pytest.mark.parametrize(
    ("how", "cause", "number", "code"),
    [
        ("segfault", "signal", signal.SIGSEGV, None),
        ("exit", "exit", None, 5),
        ("raise", "exit", None, 1),
    ],
)
def test_other_ends_of_workers_are_reported(
    tmp_path: Path, how: str, cause: str, number: int | None, code: int | None
) -> None:
    worker = int(finish(tmp_path, *program("worker_dies.py", "fork", how), options=ALWAYS))
    bundle = bundle_of(tmp_path, worker)
    assert (bundle["cause"], bundle["signal"], bundle["exit_code"]) == (cause, number, code)


def test_workers_that_end_well_are_completed(tmp_path: Path) -> None:
    workers = [int(pid) for pid in finish(tmp_path, *program("starts_workers.py", "fork")).split()]
    rows = sessions(tmp_path)
    assert {rows[pid]["status"] for pid in workers} == {"completed"}
    assert stormlog("oom", "list", str(tmp_path)) == []


def test_a_worker_the_oom_killer_took_is_named_with_its_limit(tmp_path: Path) -> None:
    with cgroup(120 << 20) as group:
        words = in_cgroup(group, command(tmp_path, *program("worker_dies.py", "fork", "grow")))
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bundle = bundle_of(tmp_path, int(done.stdout))
    assert (bundle["cause"], bundle["limit_bytes"]) == ("cgroup_oom_kill", 120 << 20)
    assert sessions(tmp_path)[pid_of(tmp_path)]["status"] == "completed"
    assert "OOM killer" in done.stderr, "the summary reports the worker"


def test_a_double_fork_is_found_and_its_end_seen(tmp_path: Path) -> None:
    daemon, _ = (int(word) for word in finish(tmp_path, *program("double_forks.py", "0.5")).split())
    bundle = bundle_of(tmp_path, daemon)
    assert (bundle["cause"], bundle["signal"]) == ("sigkill", signal.SIGKILL)
    assert sessions(tmp_path)[daemon]["event_count"] > 3


def test_a_daemon_sees_the_same_parent_with_and_without_us(tmp_path: Path) -> None:
    plain = subprocess.run(program("double_forks.py", "0"), capture_output=True, text=True, check=True)
    watched = finish(tmp_path, *program("double_forks.py", "0"))
    assert plain.stdout.split()[1] == watched.split()[1]


def test_children_that_outlive_the_program_are_left_alone(tmp_path: Path) -> None:
    out = finish(tmp_path, "sh", "-c", "sleep 5 > /dev/null 2>&1 & sleep 0.3; echo $!")
    child = int(out)
    assert sessions(tmp_path)[child]["status"] == "incomplete"
    os.kill(child, signal.SIGKILL)


def test_tools_that_exit_with_an_error_are_reported_and_not_bundled(tmp_path: Path) -> None:
    # Seldom enough that no tool lives for two samples, however slow the machine is.
    words = ["sh", "-c", "for i in 1 2 3 4 5; do grep -q x /dev/null; done; true"]
    run = [*STORMLOG, "run", "--quiet", "--dir", str(tmp_path), "--interval", "5", *ALWAYS]
    subprocess.run([*run, *words], check=True)
    assert stormlog("oom", "list", str(tmp_path)) == []


def test_a_program_that_ends_at_once_has_a_session_and_a_bundle_every_time(tmp_path: Path) -> None:
    for number in range(20):
        directory = tmp_path / str(number)
        words = ["sh", "-c", "kill -9 $$"] if number % 2 else ["sh", "-c", "exit 9"]
        done = subprocess.run(command(directory, *words, options=ALWAYS), capture_output=True, text=True)
        assert done.returncode == (-signal.SIGKILL if number % 2 else 9)
        (row,) = stormlog("sessions", str(directory))
        assert row["status"] == "interrupted"
        bundle = bundle_of(directory, row["pid"])
        assert bundle["cause"] == ("sigkill" if number % 2 else "exit")
        assert bundle["session_status"] == "interrupted"
    done = subprocess.run(command(tmp_path / "true", "true"), capture_output=True, text=True, check=True)
    (row,) = stormlog("sessions", str(tmp_path / "true"))
    assert (row["status"], "true" in done.stderr) == ("completed", True)


def test_a_signal_to_a_worker_from_outside_is_seen_at_once(tmp_path: Path) -> None:
    words = command(tmp_path, *program("starts_workers.py", "spawn"), options=ALWAYS)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout
        first = int(running.stdout.readline().split()[0])
        time.sleep(0.6)
        os.kill(first, signal.SIGTERM)
        running.communicate()
    bundle = bundle_of(tmp_path, first)
    assert (bundle["cause"], bundle["signal"]) == ("signal", signal.SIGTERM)


def test_program_and_workers_killed_together_are_all_reported(tmp_path: Path) -> None:
    words = command(tmp_path, *program("starts_workers.py", "fork"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout
        workers = [int(pid) for pid in running.stdout.readline().split()]
        time.sleep(0.5)
        # Stopped, so that it cannot outlive its workers, however long it takes to get to the last of them.
        os.kill(pid_of(tmp_path), signal.SIGSTOP)
        for pid in [*workers, pid_of(tmp_path)]:
            os.kill(pid, signal.SIGKILL)
        running.communicate()
    assert running.returncode == -signal.SIGKILL
    for pid in [pid_of(tmp_path), *workers]:
        assert bundle_of(tmp_path, pid)["cause"] == "sigkill"
    places = [row["place"] for row in bundle_of(tmp_path, pid_of(tmp_path))["evidence"]["held_by"]]
    assert any(f"pid {pid_of(tmp_path)}" in place for place in places), places


def test_forked_readers_of_objects_are_named_with_the_line_that_made_them(tmp_path: Path) -> None:
    # They begin to copy at once: what they share is read before much of it is copied.
    finish(tmp_path, *program("forked_readers.py"))
    words = [*STORMLOG, "analyze", str(tmp_path), "--json"]
    report = subprocess.run(words, capture_output=True, text=True)
    assert report.returncode == 3, report.stderr
    (found,) = [
        finding for finding in json.loads(report.stdout)["findings"] if finding["kind"] == "copy_on_write"
    ]
    assert found["metrics"]["workers"] == 3 and "forked_readers.py:" in found["title"], found
