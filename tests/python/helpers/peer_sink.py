"""Works on a sink with whatever stormlog is installed, so that two packages can be set to one directory.

Run as a script: a command, a directory, and arguments as JSON. It prints JSON. Only names that both packages
have are used here.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

START_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def event(number: int, session_id: str) -> dict[str, Any]:
    """One of a series of events with something of everything, not quite in order of time."""
    others = ["warning", "collector_degraded", "collector_recovered", "error", "critical", "peak"]
    kinds = ["sample"] * 7 + others
    kind = kinds[number * 5 % len(kinds)]
    rank = number % 3
    metadata: dict[str, Any] = {"step": number // 100}
    if number % 11 == 0:
        metadata["severity"] = [" Warning ", "Level 3", "error at 0xAB", None, 5, "  "][number // 11 % 6]
    if number % 13 == 0:
        metadata["collector_health_status"] = [" Unhealthy", "", None, "healthy"][number // 13 % 4]
    if kind == "error" and number % 2:
        metadata["oom_reason"] = "out of memory"
    if kind == "error" and number % 3:
        metadata["oom_dump_path"] = f"/dumps/{number % 5}"
    at = START_NS + (number + (7 if number % 10 == 3 else 0)) * 3 * SECOND // 2
    return {
        "schema_version": 3,
        "session_id": session_id,
        "timestamp_ns": at,
        "event_type": kind,
        "collector": "stormlog.cuda_tracker",
        "sampling_interval_ms": 100,
        "pid": 4242,
        "host": "h\u00f6st",
        "device_id": number % 2,
        "allocator_allocated_bytes": 1000 + number * 37 % 501,
        "allocator_reserved_bytes": 4000 + number * 11 % 301,
        "allocator_active_bytes": None,
        "allocator_inactive_bytes": None,
        "allocator_change_bytes": number % 7 - 3,
        "device_used_bytes": 3900 + number * 53 % 907,
        "device_free_bytes": None,
        "device_total_bytes": 1 << 34,
        "context": None if number % 4 else f"step {number} \u2713",
        "job_id": None,
        "rank": rank,
        "local_rank": rank,
        "world_size": 3,
        "metadata": metadata,
    }


def open_sink(root: str, settings: dict[str, Any]) -> Any:
    from stormlog.telemetry_sink import AppendOnlyTelemetrySink, TelemetrySinkConfig

    return AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir=Path(root), **settings))


def append(root: str, session_id: str, numbers: list[int], settings: dict[str, Any]) -> Any:
    """Opens the sink and appends; a summary is given, so that two packages write the same."""
    from stormlog.session import SessionSummary

    sink = open_sink(root, settings)
    sink.start_session(
        SessionSummary(
            session_id=session_id,
            status="running",
            started_at_ns=START_NS - 1,
            ended_at_ns=None,
            host="h\u00f6st",
            pid=4242,
            job_id="job-7",
            source="test",
        )
    )
    for number in range(*numbers):
        sink.append(event(number, session_id))
    return sink


def write(root: str, session_id: str, numbers: list[int], settings: dict[str, Any]) -> Any:
    sink = append(root, session_id, numbers, settings)
    sink.close()
    return sink.get_diagnostics()


def hang(root: str, session_id: str, numbers: list[int], settings: dict[str, Any]) -> None:
    """Writes and then waits to be killed."""
    sink = append(root, session_id, numbers, settings)
    sink.flush(force=True)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    time.sleep(60)


def reopen(root: str, settings: dict[str, Any]) -> Any:
    """Opens and closes without writing."""
    sink = open_sink(root, settings)
    sink.close()
    return sink.get_diagnostics()


def read(root: str) -> Any:
    """Everything a reader can learn."""
    from stormlog.telemetry import load_telemetry_sessions
    from stormlog.telemetry_rollups import read_telemetry_rollups
    from stormlog.telemetry_sink import read_telemetry_sink_manifest, resolve_telemetry_sink_segment_paths

    manifest = read_telemetry_sink_manifest(root)
    rollups = read_telemetry_rollups(root)
    return {
        "manifest": None if manifest is None else asdict(manifest),
        "rollups": None if rollups is None else asdict(rollups),
        "segments": [str(path) for path in resolve_telemetry_sink_segment_paths(root)],
        "sessions": {
            loaded.summary.session_id: {
                "summary": asdict(loaded.summary),
                "times": [event.timestamp_ns for event in loaded.events],
            }
            for loaded in load_telemetry_sessions(root)
        },
    }


def build(root: str, window_ns: int) -> Any:
    """Rollups made from loaded sessions, by the functions anyone may call."""
    from stormlog.telemetry import load_telemetry_sessions
    from stormlog.telemetry_rollups import (
        build_telemetry_rollups,
        rollup_coverage_from_manifest,
        telemetry_rollup_file_to_dict,
    )
    from stormlog.telemetry_sink import read_telemetry_sink_manifest

    manifest = read_telemetry_sink_manifest(root)
    coverage = rollup_coverage_from_manifest(manifest, pruned_segment_count=0, pruned_bytes=0)
    sessions = load_telemetry_sessions(root)
    return telemetry_rollup_file_to_dict(
        build_telemetry_rollups(sessions, manifest, window_duration_ns=window_ns, coverage=coverage)
    )


if __name__ == "__main__":
    # The script's own directory holds tests, not packages.
    sys.path.pop(0)
    command, root, *rest = sys.argv[1:]
    functions: dict[str, Any] = {"write": write, "hang": hang, "reopen": reopen, "read": read, "build": build}
    sys.stdout.write(json.dumps(functions[command](root, *map(json.loads, rest))))
