"""A process recorded from outside and from inside is one process: each finding is reported once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from stormlog.recording import Recorder

MIB = 1 << 20
PID = 7
STATED = ("device_used",)
SUPPORTS = [
    "allocator_allocated",
    "allocator_reserved",
    "allocator_active",
    "allocator_inactive",
    "device_used",
    "device_free",
    "device_total",
    "native_allocator_history",
    "fragmentation_analysis",
    "allocator_attribution",
    "bounded_profiling",
]


def sample(session_id: str, second: int) -> dict[str, Any]:
    """A host sample of a program that leaks 50 MiB a second."""
    capabilities: dict[str, Any] = {
        "backend": "cpu",
        "telemetry_collector": "stormlog.process_tracker",
        "sampling_source": "test",
        **{f"supports_{name}": name in STATED for name in SUPPORTS},
    }
    unknown = ("allocated", "reserved", "active", "inactive", "change")
    return {
        "schema_version": 4,
        "session_id": session_id,
        "timestamp_ns": 1_700_000_000_000_000_000 + second * 1_000_000_000,
        "event_type": "sample",
        "collector": "stormlog.process_tracker",
        "sampling_interval_ms": 1000,
        "pid": PID,
        "host": "h",
        "job_id": None,
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        "device_id": -1,
        **{f"allocator_{name}_bytes": None for name in unknown},
        "device_used_bytes": (1000 + 50 * second) * MIB,
        "device_free_bytes": None,
        "device_total_bytes": None,
        "context": None,
        "metadata": {"memory_capabilities": capabilities},
    }


def leaks(path: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "stormlog", "analyze", str(path), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return [finding for finding in findings if finding["kind"] == "leak"]


def test_analyze_reports_the_leak_of_a_joined_process_once(tmp_path: Path) -> None:
    run = tmp_path / "2026-11-15T10-22-31Z-train-4f2a"
    run.mkdir()
    record = {"format": "stormlog.run", "schema_version": 1, "status": "completed", "pid": PID}
    (run / "run.json").write_text(json.dumps(record))
    for name in (f"rank0-pid{PID}", f"rank0-pid{PID}-host"):
        with Recorder(run / name) as recorder:
            assert all(recorder.append(sample(recorder.session.session_id, second)) for second in range(300))
    (joined,) = leaks(run)
    # Each recording by itself shows it, and the finding points to both.
    apart = [leaks(run / name) for name in (f"rank0-pid{PID}", f"rank0-pid{PID}-host")]
    assert [len(found) for found in apart] == [1, 1]
    assert len(joined["evidence"]) == sum(len(found[0]["evidence"]) for found in apart)
