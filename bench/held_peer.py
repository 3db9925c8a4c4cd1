"""Bytes that stormlog 0.4.3 takes for 100,000 events held, host-shaped and GPU-shaped."""

# mypy: ignore-errors
# (it imports 0.4.3, while the checker sees our package of the same name)

from __future__ import annotations

import gc
import json
import os
import sys
import time
import types
from pathlib import Path

COUNT = 100_000
HEALTH = {
    "collector_health_status": "healthy",
    "telemetry_partial": False,
    "collector_partial_fields": [],
    "collector_last_error": None,
    "collector_consecutive_failures": 0,
    "collector_next_retry_epoch_s": None,
}


def resident() -> int:
    """RSS after a collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def host() -> int:
    """Events of the CPU tracker."""
    from stormlog import CPUMemoryTracker

    tracker = CPUMemoryTracker(max_events=10_000_000)
    before = resident()
    for number in range(COUNT):
        tracker._add_event("sample", number, "Memory sample", rss=number << 12)
    return resident() - before


def cuda() -> int:
    """Events of the torch tracker, each with the copy its OOM recorder keeps."""
    # The module asks for torch when it is imported, not for what is measured here.
    torch = types.ModuleType("torch")
    torch.device = type("device", (), {})
    sys.modules["torch"] = torch
    from stormlog.oom_flight_recorder import OOMFlightRecorder, OOMFlightRecorderConfig
    from stormlog.tracker import MemoryTracker, TrackingEvent

    recorder = OOMFlightRecorder(OOMFlightRecorderConfig(buffer_size=COUNT))
    events = []
    before = resident()
    for number in range(COUNT):
        used, total = (10 << 30) + (number << 12), 80 << 30
        event = TrackingEvent(
            timestamp=time.time(),
            event_type="sample",
            memory_allocated=used,
            memory_reserved=used + 4096,
            memory_change=number,
            device_id=0,
            session_id="2f1f7f0e-7a40-4f0e-9c2b-111111111111",
            context="Memory sample",
            metadata=dict(HEALTH, collector_partial_fields=[]),
            active_memory=used,
            inactive_memory=4096,
            device_used=used,
            device_free=total - used,
            device_total=total,
        )
        events.append(event)
        recorder.record_event(MemoryTracker._tracking_event_payload(event))
    return resident() - before


print(json.dumps({"bytes": {"host": host, "cuda": cuda}[sys.argv[1]]()}))
