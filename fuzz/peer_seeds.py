"""Small files as stormlog 0.4.3 writes them, for make-seeds. Runs in an environment that has it."""

from __future__ import annotations

import json
import platform
import socket
import sys
from pathlib import Path
from typing import Any

from stormlog import CPUMemoryTracker
from stormlog.telemetry_sink import AppendOnlyTelemetrySink, TelemetrySinkConfig

# No seed may name the machine it was made on.
socket.gethostname = platform.node = lambda: "node-1"

FEATURES = (
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
)


def cuda_event(number: int) -> dict[str, Any]:
    """An event as its tracker records it on a GPU, which this machine need not have."""
    source = "torch.cuda.memory_allocated/reserved"
    capabilities: dict[str, Any] = {
        "backend": "cuda",
        "telemetry_collector": "stormlog.cuda_tracker",
        "sampling_source": source,
        **{f"supports_{feature}": True for feature in FEATURES},
    }
    used, total = (10 << 30) + number * (1 << 20), 80 << 30
    return {
        "schema_version": 4,
        "session_id": "2f1f7f0e-7a40-4f0e-9c2b-111111111111",
        "timestamp_ns": 1_700_000_000_000_000_000 + number * 100_000_000,
        "event_type": "sample",
        "collector": "stormlog.cuda_tracker",
        "sampling_interval_ms": 100,
        "pid": 4711,
        "host": "node-1",
        "job_id": "job-7",
        "rank": 1,
        "local_rank": 1,
        "world_size": 2,
        "device_id": 0,
        "allocator_allocated_bytes": used,
        "allocator_reserved_bytes": used,
        "allocator_active_bytes": used,
        "allocator_inactive_bytes": 0,
        "allocator_change_bytes": -number,
        "device_used_bytes": used,
        "device_free_bytes": total - used,
        "device_total_bytes": total,
        "context": "Memory sample",
        "metadata": {
            "collector_health_status": "healthy",
            "telemetry_partial": False,
            "collector_partial_fields": [],
            "collector_last_error": None,
            "usage_percent": 12.5,
            "sampling_source": source,
            "memory_capabilities": capabilities,
        },
    }


LEGACY: dict[str, dict[str, Any]] = {
    "legacy-torch": {
        "timestamp": 1700000000.25,
        "event_type": "allocation",
        "memory_allocated": 1 << 20,
        "memory_reserved": 2 << 20,
        "memory_change": -512,
        "device_id": 0,
        "context": "step",
        "metadata": {"rank": "1", "world_size": "2", "total_memory": 1 << 30},
    },
    "legacy-tensorflow": {
        "timestamp": 1700000000,
        "type": "sample",
        "memory_mb": 12.5,
        "device": "/GPU:0",
        "message": "m",
        "metadata_host": "h",
        "metadata_pid": 7,
    },
}


def main(out: Path) -> None:
    """Writes the files under `out`."""
    tracker = CPUMemoryTracker(sampling_interval=0.1)
    for number in range(3):
        tracker._add_event("sample", number, "sample")
    tracker.export_events(str(out / "host.json"), "json")
    tracker.export_events(str(out / "host.csv"), "csv")
    events = [cuda_event(number) for number in range(3)]
    (out / "cuda.json").write_text(json.dumps(events, indent=2))
    (out / "cuda-object.json").write_text(json.dumps({"events": events[:1], "note": [1, {"a": 2.5}]}))
    for name, record in LEGACY.items():
        (out / name).write_text(json.dumps(record))
    for name in ("sink", "open"):
        sink = AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir=out / name, flush_every_events=1))
        session = sink.start_session()
        for event in events:
            sink.append({**event, "session_id": session.session_id})
        if name == "sink":
            sink.close()


main(Path(sys.argv[1]))
