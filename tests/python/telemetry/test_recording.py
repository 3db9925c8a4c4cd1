"""Recordings: what was recorded is there, whatever ended the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from stormlog.recording import Recorder
from stormlog.telemetry import load_telemetry_sessions


def sessions(path: Path) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "stormlog", "sessions", str(path), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


def test_a_clean_session_is_completed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as recorder:
        assert recorder.sample(context="here")
        assert recorder.append({"timestamp": 1.5, "memory_allocated": 7, "device_id": 0})
        assert recorder.loss() == (0, 0, None)
    recorder.close()  # a second time does nothing
    (loaded,) = load_telemetry_sessions(tmp_path / "run")
    assert loaded.summary.status == "completed"
    assert loaded.summary.session_id == recorder.session.session_id
    assert [event.event_type for event in loaded.events] == ["sample", "start", "sample", "stop"]
    assert (loaded.events[1].device_used_bytes or 0) > 1 << 20
    assert loaded.events[1].allocator_allocated_bytes is None


@pytest.mark.parametrize("keep_log", [True, False])
def test_a_killed_session_is_interrupted_and_whole(tmp_path: Path, keep_log: bool) -> None:
    program = textwrap.dedent(f"""
        import sys
        from stormlog.recording import Recorder
        recorder = Recorder({str(tmp_path / "run")!r}, keep_log={keep_log})
        recorder.start(interval=0.001)
        for number in range(10**9):
            assert recorder.sample(context=str(number))
            print(number, flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        last = -1
        for line in child.stdout:
            last = int(line)
            if last == 500:
                child.send_signal(signal.SIGKILL)
                break
        rest = child.stdout.read().split("\n")
    last = max([last, *(int(line) for line in rest[:-1])])  # a line cut off was not acknowledged
    assert child.returncode == -signal.SIGKILL
    (row,) = sessions(tmp_path / "run")
    assert row["status"] == "interrupted"
    assert row["pid"] == child.pid
    (loaded,) = load_telemetry_sessions(tmp_path / "run")
    seen = [int(event.context) for event in loaded.events if event.context]
    assert seen == list(range(len(seen)))
    assert len(seen) in (last + 1, last + 2), "every acknowledged sample, and at most the one in flight"


def test_a_deleted_directory_does_not_stop_the_program(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    # What is in the files when they are deleted is lost in any case; a file that is found missing before its
    # first record is made again.
    assert recorder.sample()
    for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "run").rmdir()
    for _ in range(200_000):
        if not recorder.sample():
            break
    assert recorder.loss().records > 0


def test_child_continues_recording_after_fork(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    child = os.fork()
    if child == 0:
        recorder.sample(context="child")
        os._exit(0)
    os.waitpid(child, 0)
    recorder.sample(context="parent")
    recorder.close()
    (loaded,) = load_telemetry_sessions(tmp_path / "run")
    assert {(event.pid == child, event.context) for event in loaded.events if event.context} == {
        (True, "child"),
        (False, "parent"),
    }


def test_a_recorder_states_what_run_states(tmp_path: Path) -> None:
    """Both are clients of one engine: what can be known of a process is stated once."""
    command = [sys.executable, "-m", "stormlog", "run", "--quiet", "--dir", str(tmp_path / "runs")]
    subprocess.run([*command, "--", sys.executable, "-c", "pass"], check=True, timeout=60)
    with Recorder(tmp_path / "own") as recorder:
        recorder.start(interval=0.05)
    statements = []
    for place in ("runs", "own"):
        (loaded,) = load_telemetry_sessions(tmp_path / place)
        (start,) = [event for event in loaded.events if event.event_type == "start"]
        statements.append((start.collector, start.metadata["memory_capabilities"], start.device_total_bytes))
    assert statements[0] == statements[1]
    samples = [event for event in loaded.events if event.event_type == "sample"]
    assert {event.sampling_interval_ms for event in samples} == {50}


def test_mistakes_are_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run")
    with pytest.raises(ValueError, match="Legacy record is missing a valid timestamp"):
        recorder.append({"memory_mb": 1})
    with pytest.raises(ValueError, match="belongs to session"):
        recorder.append({"timestamp": 1, "session_id": "another"})
    with pytest.raises(ValueError, match="interval must be > 0"):
        recorder.start(0)
    recorder.close()
    with pytest.raises(ValueError, match="closed"):
        recorder.sample()
    with pytest.raises(ValueError, match="already"):
        Recorder(tmp_path / "run")
