"""Small files as stormlog 0.4.3 writes them, for make-seeds. Runs in an environment that has it."""

from __future__ import annotations

import json
import platform
import random
import socket
import sys
from pathlib import Path
from typing import Any

from stormlog import CPUMemoryTracker
from stormlog.telemetry_sink import AppendOnlyTelemetrySink, TelemetrySinkConfig

# No seed may name the machine it was made on.
socket.gethostname = platform.node = lambda: "node-1"

# What an event of a GPU looks like is written down once.
sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import make_events  # noqa: E402


def cuda_event(number: int) -> dict[str, Any]:
    """An event as its tracker records it on the second of two ranks; the numbers are small and regular."""
    made = make_events.event("cuda", random.Random(number), number)
    used = (10 << 30) + number * (1 << 20)
    same = ("allocator_allocated", "allocator_reserved", "allocator_active", "device_used")
    bytes_of = dict.fromkeys(same, used)
    bytes_of |= {"allocator_inactive": 0, "allocator_change": -number}
    bytes_of["device_free"] = made["device_total_bytes"] - used
    identity = {"rank": 1, "local_rank": 1, "world_size": 2}
    metadata = {**made["metadata"], "usage_percent": 12.5}
    return {
        **made,
        **identity,
        **{f"{key}_bytes": value for key, value in bytes_of.items()},
        "metadata": metadata,
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
