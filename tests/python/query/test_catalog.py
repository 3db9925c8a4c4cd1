"""A process has one story: whatever was recorded about it is joined, by the command and in Python alike."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stormlog import catalog

STORMLOG = [sys.executable, "-m", "stormlog"]
# Samples itself into the run's directory, has a child, reports an exception, and dies of it.
PROGRAM = """
import os, subprocess, sys, time
import stormlog
from stormlog import _native

run = os.environ[_native.catalog.RUN_VARIABLE]
tracker = stormlog.CPUMemoryTracker(
    sampling_interval=0.02, recording_dir=_native.catalog.session_directory(run, 0, -1)
)
tracker.start_tracking()
kept = [bytearray(1 << 20) for _ in range(8)]
while len(tracker.get_events()) < 3:
    time.sleep(0.01)
subprocess.run([sys.executable, "-c", "import time; time.sleep(0.5)"], check=True)
tracker.stop_tracking()
raise ValueError("the end")
"""


def command(*words: str) -> Any:
    done = subprocess.run([*STORMLOG, *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one run: samples from outside and inside, heap captures, an exception and a bundle."""
    root = tmp_path_factory.mktemp("runs")
    program = root / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    words = [*STORMLOG, "run", "--heap", "--interval", "0.02", "--dir", str(root / "runs"), "--"]
    done = subprocess.run([*words, sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    return root / "runs"


def test_process_has_all_its_parts(recorded: Path) -> None:
    (run,) = catalog.runs(recorded)
    assert (run.status, run.problems, run.path.parent) == ("interrupted", [], recorded)
    assert run.command[-1].endswith("train.py")
    assert run.supervisor_pid
    assert run.started_at_ns is not None and run.ended_at_ns is not None
    assert run.started_at_ns < run.ended_at_ns
    main, *others = run.processes
    assert (main.pid, main.is_root, main.program) == (run.pid, True, "train.py")
    assert main.start_ticks
    assert [session.viewpoint for session in main.sessions] == ["outside", "inside"]
    assert {session.rank for session in main.sessions} == {0}
    assert [path.name for path in main.captures] == ["heap.bin"]
    assert len(main.bundles) == 1 and len(main.exceptions) == 1
    assert main.snapshots == []
    assert (main.end.state, main.end.exit_code, main.end.signal) == ("failed", 1, None)
    assert main.end.verdict is not None and "status 1" in main.end.verdict
    assert main.peak_rss_bytes and main.heap_peak_bytes and main.heap_peak_bytes >= 8 << 20
    (child,) = [process for process in others if process.captures]
    assert (child.is_root, child.end.state) == (False, "completed")
    assert [session.viewpoint for session in child.sessions] == ["outside"]
    assert child.start_ticks and child.start_ticks >= main.start_ticks


def test_command_and_python_have_the_same_processes(recorded: Path) -> None:
    rows = command("sessions", str(recorded))
    by_session = {row["session_id"]: row["process"] for row in rows}
    processes = catalog.processes(recorded)
    assert len(by_session) == sum(len(process.sessions) for process in processes) >= 3
    for process in processes:
        for session in process.sessions:
            row = by_session[session.session_id]
            for name in ("pid", "start_ticks", "program", "is_root", "peak_rss_bytes", "heap_peak_bytes"):
                assert row[name] == getattr(process, name), name
            for name in ("captures", "bundles", "snapshots", "exceptions"):
                assert row[name] == [str(path) for path in getattr(process, name)], name
            assert row["run"] == str(process.run)
            assert row["end"]["state"] == process.end.state
            assert row["end"].get("verdict") == process.end.verdict
            assert row["end"].get("cause") == process.end.cause
            stated = [(part["viewpoint"], part["session_id"], part["path"]) for part in row["sessions"]]
            assert stated == [(s.viewpoint, s.session_id, str(s.path)) for s in process.sessions]
    (main,) = [process for process in processes if process.bundles]
    shown = command("oom", "show", str(main.bundles[0]))["process"]
    assert shown == by_session[main.sessions[0].session_id]
    captures = {row["path"]: row["pid"] for row in command("captures", str(recorded))}
    joined = {str(path): process.pid for process in processes for path in process.captures}
    assert captures == joined


def test_recordings_without_a_run_are_processes_too(recorded: Path, tmp_path: Path) -> None:
    """Copied out of its run, a session is a process of which one recording is known."""
    (run,) = catalog.runs(recorded)
    inside = run.processes[0].sessions[1]
    shutil.copytree(inside.path, tmp_path / "alone")
    (process,) = catalog.processes(tmp_path)
    assert (process.run, process.pid) == (None, run.pid)
    assert [session.session_id for session in process.sessions] == [inside.session_id]
    assert catalog.runs(tmp_path) == []
    (row,) = command("sessions", str(tmp_path))
    assert (row["process"]["run"], row["process"]["pid"]) == (None, run.pid)


def test_damaged_and_foreign_files_cost_no_process(recorded: Path, tmp_path: Path) -> None:
    (source,) = recorded.iterdir()
    run = tmp_path / "runs" / source.name
    shutil.copytree(source, run, symlinks=True)
    processes = len(catalog.processes(run))
    outside = next(path for path in run.iterdir() if path.name.endswith("-host")).with_suffix("")
    (run / "run.json").write_text("{", encoding="utf-8")
    (run / "notes").mkdir()
    (run / "notes" / "session.json").write_text("[]", encoding="utf-8")
    (run / "rank0-pid1-other").mkdir()
    (run / "rank7-pid9999").symlink_to("/")
    (run / "exceptions" / "x-1.json").write_text("{}", encoding="utf-8")
    before = sorted(path.stat().st_mtime_ns for path in run.rglob("*"))
    (found,) = catalog.runs(tmp_path)
    assert found.status == "unknown"
    assert len(found.problems) == 2 and any("run.json" in problem for problem in found.problems)
    assert len(found.processes) == processes
    assert not any(process.pid == 9999 for process in found.processes)
    assert sorted(path.stat().st_mtime_ns for path in run.rglob("*")) == before, "readers never write"
    assert outside.parent == run
    newer = {"format": "stormlog.run", "schema_version": 99, "status": "completed"}
    (run / "run.json").write_text(json.dumps(newer), encoding="utf-8")
    assert catalog.runs(tmp_path) == [], "the layout of another version is not interpreted"


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    for find in (catalog.runs, catalog.processes):
        with pytest.raises(FileNotFoundError):
            find(tmp_path / "missing")
    assert catalog.runs(tmp_path) == []
    assert catalog.processes(tmp_path) == []
    assert list(tmp_path.iterdir()) == [], "readers never write"
