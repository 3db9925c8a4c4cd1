"""The same calls on whichever stormlog this interpreter has; prints what came of them as JSON.

`python peer_tracker.py FOLDER`: run by test_tracker_compat.py under 0.4.3 and under ours. Only what can be
compared is printed: keys, types, texts; never sizes or times.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stormlog.collector_health import CollectorHealthState, collector_retry_delay_seconds
from stormlog.cpu_profiler import CPUMemoryProfiler, CPUMemoryTracker
from stormlog.oom_flight_recorder import OOMFlightRecorder, OOMFlightRecorderConfig, classify_oom_exception
from stormlog.phases import PhaseRecorder
from stormlog.session import create_session_summary
from stormlog.telemetry_sink import TelemetrySinkConfig
from stormlog.utils import convert_bytes, format_bytes, get_system_info, suggest_memory_optimization


class ResourceExhaustedError(Exception):
    pass


# What 0.4.3 gets right. What it misses or mistakes is in crates/postmortem.
EXCEPTIONS: list[BaseException] = [
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)"),
    RuntimeError("HIP out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("simulated out of memory for demo"),
    ResourceExhaustedError("OOM when allocating tensor with shape[1,2]"),
    RuntimeError("Resource exhausted: OOM when allocating tensor"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("memory allocation failed"),
    RuntimeError("failed to allocate 512 bytes"),
    ValueError("shapes do not match"),
    KeyError("memory"),
    RuntimeError(""),
]


def shape(value: Any) -> Any:
    """Keys and types instead of values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return type(value).__name__


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def tracker(folder: Path) -> dict[str, Any]:
    config = TelemetrySinkConfig(root_dir=folder / "sink")
    it = CPUMemoryTracker(sampling_interval=0.02, job_id="j", telemetry_sink_config=config)
    before = {"stats": shape(it.stats), "statistics": sorted(it.get_statistics())}
    it.start_tracking()
    with it.phase("train", metadata={"epoch": 1}):
        block = bytearray(16 << 20)
        time.sleep(0.2)
    del block
    it.stop_tracking()
    it.export_events(str(folder / "events.json"), "json")
    it.export_events(str(folder / "events.csv"))
    records = json.loads((folder / "events.json").read_text())
    with (folder / "events.csv").open() as file:
        header = next(csv.reader(file))
    texts = {
        (event.event_type, re.sub(r"[\d.]+ [KMG]?B", "SIZE", event.context or "")) for event in it.events
    }
    summary = it.get_session_summary()
    assert summary is not None
    return {
        "before": before,
        "stats": shape(it.stats),
        "statistics": shape(it.get_statistics()),
        "event": [field.name for field in dataclasses.fields(it.events[0])],
        "texts": sorted(texts),
        "record": shape({key: value for key, value in records[-1].items() if key != "metadata"}),
        "metadata": sorted(records[-1]["metadata"]),
        "scope": shape(
            next(r for r in records if r["event_type"] == "phase_enter")["metadata"]["phase_scope"]
        ),
        "csv": header,
        "order": [record["event_type"] for record in records if record["event_type"] in {"start", "stop"}],
        "timeline": sorted(it.get_memory_timeline()),
        "summary": [summary.source, summary.status, summary.job_id],
        "errors": [
            error_of(lambda: CPUMemoryTracker(sampling_interval=0)),
            error_of(lambda: CPUMemoryTracker(max_events=0)),
            error_of(lambda: it.get_memory_timeline(0)),
            error_of(lambda: it.export_events("x", "xml")),
            error_of(lambda: it.enter_phase("x")),
        ],
    }


def profiler() -> dict[str, Any]:
    it = CPUMemoryProfiler()
    result = it.profile_function(len, [])
    with it.profile_context("block"):
        pass
    return {
        "summary": shape(it.get_summary()),
        "result": shape(result.to_dict()),
        "names": [result.name for result in it.results],
    }


def phases() -> dict[str, Any]:
    recorder = PhaseRecorder()
    token, boundary = recorder.enter(session_id="s", rank=0, name=" outer ", attrs={"a": 1})
    inner, nested = recorder.enter(session_id="s", rank=0, name="inner")
    wrong = [error_of(lambda: recorder.exit(token))]
    thread = threading.Thread(target=lambda: wrong.append(error_of(lambda: recorder.exit(inner))))
    thread.start()
    thread.join()
    left = [recorder.exit(inner), recorder.exit(token)]
    wrong.append(error_of(lambda: recorder.exit(token)))
    wrong.append(error_of(lambda: recorder.enter(session_id="s", rank=0, name=" ")))
    found = [dataclasses.asdict(item) for item in (boundary, nested, *left)]
    for item in found:
        item["metadata"]["phase_scope"]["thread_id"] = 0
    return {"boundaries": found, "errors": wrong}


def bundle(folder: Path) -> dict[str, Any]:
    config = OOMFlightRecorderConfig(enabled=True, dump_dir=str(folder / "dumps"), buffer_size=2, max_dumps=2)
    recorder = OOMFlightRecorder(config, system_info_provider=lambda: {"x": 1})
    for number in range(3):
        recorder.record_event({"timestamp": number, "anything": [number]})
    session = create_session_summary(source="test", host="h", pid=1, session_id="s", started_at_ns=5)
    path: str | None = None
    for _ in range(3):
        path = recorder.dump(
            reason="r",
            exception=RuntimeError("boom"),
            context="c",
            backend="my/gpu 1",
            metadata={"at": Path("x")},
            session_summary=session,
        )
    assert path is not None
    files = {file.name: json.loads(file.read_text()) for file in sorted(Path(path).iterdir())}
    files["environment.json"].update(pid=0, cwd="")
    files["manifest.json"].update(bundle_name="", created_at_utc="")
    off = OOMFlightRecorder(OOMFlightRecorderConfig())
    return {
        "name": re.sub(r"\d{8}T\d{6}Z_\d+", "WHEN_PID", Path(path).name),
        "files": files,
        "left": len(list((folder / "dumps").iterdir())),
        "off": off.dump(reason="r", exception=ValueError(), context=None, backend="b"),
    }


def small() -> dict[str, Any]:
    return {
        "classified": [
            [str(error), dataclasses.asdict(classify_oom_exception(error))] for error in EXCEPTIONS
        ],
        "format": [format_bytes(n) for n in (0, 1, 1023, 1024, -5000, 3 << 40, 5 << 60)],
        "precision": format_bytes(1536, 1),
        "convert": [convert_bytes(3, "GB", "MB"), convert_bytes(1, "B", "KB")],
        "unit": error_of(lambda: convert_bytes(1, "X", "B")),
        "advice": [
            len(
                suggest_memory_optimization(
                    {"fragmentation_ratio": a, "utilization_ratio": b, "waste_ratio": c}
                )
            )
            for a, b, c in ((0.4, 0.95, 0.3), (0, 0.5, 0), (0, 0.1, 0.1))
        ],
        "health": CollectorHealthState("degraded", True, ("a", "a", ""), "e", 2, 1.5).to_dict(),
        "pauses": [
            collector_retry_delay_seconds(n, initial_delay_s=1, factor=2, max_delay_s=30) for n in range(9)
        ],
        "system": sorted(get_system_info()),
    }


def main(folder: Path) -> dict[str, Any]:
    logging.disable(logging.CRITICAL)
    return {
        "tracker": tracker(folder),
        "profiler": profiler(),
        "phases": phases(),
        "bundle": bundle(folder),
        "small": small(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
