"""Writes events as 0.4.3 exports them: make_events.py cuda|host json|jsonl COUNT OUT.

The text of one event is made by `json` and its numbers are then replaced: a million `json.dumps` with an
indent would take longer than what is to be measured.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

SESSION = "2f1f7f0e-7a40-4f0e-9c2b-111111111111"
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
HOST_FEATURES = {"allocator_allocated", "allocator_reserved", "allocator_attribution", "device_used"}
TOTAL = 80 << 30


def event(shape: str, draw: random.Random, number: int) -> dict[str, Any]:
    """One event; the numbers vary, the rest does not."""
    is_cuda = shape == "cuda"
    collector = f"stormlog.{'cuda' if is_cuda else 'cpu'}_tracker"
    source = "torch.cuda.memory_allocated/reserved" if is_cuda else "legacy"
    capabilities: dict[str, Any] = {
        "backend": shape if is_cuda else "cpu",
        "telemetry_collector": collector,
        "sampling_source": source,
        **{f"supports_{feature}": is_cuda or feature in HOST_FEATURES for feature in FEATURES},
    }
    health = {
        "collector_health_status": "healthy",
        "telemetry_partial": False,
        "collector_partial_fields": [],
        "collector_last_error": None,
        "collector_consecutive_failures": 0,
        "collector_next_retry_epoch_s": None,
        "backend": "cuda",
        "supports_device_total": True,
        "supports_device_free": True,
        "sampling_source": source,
    }
    allocated = draw.randrange(10 << 30, 40 << 30)
    reserved = allocated + draw.randrange(1 << 30) if is_cuda else allocated
    used = reserved + (1 << 30) if is_cuda else allocated
    return {
        "schema_version": 4,
        "session_id": SESSION,
        "timestamp_ns": 1_700_000_000_000_000_000 + number * 100_000_000,
        "event_type": "sample",
        "collector": collector,
        "sampling_interval_ms": 100,
        "pid": 4711,
        "host": "node-1",
        "job_id": "job-7" if is_cuda else None,
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        "device_id": 0 if is_cuda else -1,
        "allocator_allocated_bytes": allocated,
        "allocator_reserved_bytes": reserved,
        "allocator_active_bytes": allocated if is_cuda else None,
        "allocator_inactive_bytes": reserved - allocated if is_cuda else None,
        "allocator_change_bytes": draw.randrange(-1 << 20, 1 << 20),
        "device_used_bytes": used,
        "device_free_bytes": TOTAL - used if is_cuda else None,
        "device_total_bytes": TOTAL if is_cuda else None,
        "context": "Memory sample",
        "metadata": {**(health if is_cuda else {}), "memory_capabilities": capabilities},
    }


def main(shape: str, form: str, count: int, out: Path) -> None:
    """Writes the file."""
    draw = random.Random(1)
    first = event(shape, draw, 0)
    varying = [key for key in first if key.endswith(("_bytes", "_ns")) and first[key] is not None]
    marked = {key: f"<{key}>" if key in varying else value for key, value in first.items()}
    text = json.dumps(marked, indent=2) if form == "json" else json.dumps(marked, sort_keys=True)
    text = text.replace("\n", "\n  ").replace("%", "%%")
    for key in varying:
        text = text.replace(f'"<{key}>"', f"%({key})d")
    before, between, after = ("[\n  ", ",\n  ", "\n]") if form == "json" else ("", "\n", "\n")
    with out.open("w") as file:
        file.write(before)
        for number in range(count):
            file.write((between if number else "") + text % event(shape, draw, number))
        file.write(after)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
