"""The table's files, and the calls that load them. Adds to the cases of `compat_cases`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat_cases import CASES, v2, v3, v4
from compat_more import WHOLE
from stormlog import telemetry

STOPPED = [
    v4(timestamp_ns=30, event_type="stop"),
    v4(timestamp_ns=10, event_type="start"),
    v4(timestamp_ns=20),
]
TWO = [v3(timestamp_ns=1), v3(timestamp_ns=9, session_id="s-2", event_type="stop"), v3(timestamp_ns=4)]
TRACKED = {"telemetry_events": [v4()], "session_summary": {**WHOLE, "session_id": "s-1"}}
FILES: dict[str, Any] = {
    "array.json": STOPPED,
    "two-sessions.json": TWO,
    "mixed-schemas.json": [v2(), v3(), v4()],
    "events.json": {"events": STOPPED, "other": 1},
    "tracked.json": TRACKED,
    "tracked-elsewhere.json": {**TRACKED, "session_summary": WHOLE},
    "tracked-without.json": {"telemetry_events": [v4()]},
    "single.json": v4(),
    "single-legacy.json": {"timestamp": 1.5, "memory_mb": 3},
    "legacy.json": [{"timestamp": 2.5, "memory_allocated": 10}, {"timestamp": 1, "type": "stop"}],
    "keyed.json": {"mine": STOPPED},
    "empty.json": [],
    "bad-record.json": [v4(), v4(pid=-5)],
    "bad-unknown.json": [v3(alpha=1)],
    "bad-element.json": [v4(), 5],
    "bad-object.json": {"a": 1},
    "bad-scalar.json": 5,
    "bad-keyed.json": {"mine": {}},
}
TEXTS = {
    "truncated.json": json.dumps(STOPPED)[:-40],
    "blank.json": "",
    "lines.jsonl": "".join(json.dumps(event) + "\n" for event in STOPPED),
    "duplicate-keys.json": json.dumps([v4()]).replace('"pid": 4242', '"pid": 1, "pid": 4242'),
    "nan.json": json.dumps([v3(metadata={"f": float("nan")})]),
    "huge.json": json.dumps([v3(metadata={"i": 2**80})]),
    "huge-counter.json": json.dumps([v3(device_used_bytes=2**64, device_total_bytes=None)]),
    "null-counters.json": json.dumps([{"timestamp": 1, "memory_allocated": None}]),
    "byte-order-mark.json": "\ufeff" + json.dumps([v4()]),
    "unicode.json": json.dumps([v4(context="Zürich 日本 \U0001f600", host="nöde")], ensure_ascii=False),
    "numbers.json": json.dumps([v3(metadata={"f": 0.1, "e": 1e300, "i": 2**63, "n": -(2**63), "t": True})]),
}


def write_files(folder: Path) -> None:
    for name, payload in FILES.items():
        (folder / name).write_text(json.dumps(payload), encoding="utf-8")
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "directory").mkdir(exist_ok=True)
    write_sink(folder / "sink")
    write_sink(folder / "sink-manifest", sessions=[{**WHOLE, "session_id": "s-1", "status": "interrupted"}])
    write_sink(folder / "sink-idle-session", sessions=[WHOLE])
    write_sink(folder / "sink-torn", tail='{"schema_version": 3, "sess')
    write_sink(folder / "sink-damaged", tail='{"schema_version": 3, "sess\n')
    write_sink(folder / "sink-empty", segments=(), sessions=[WHOLE])


SEGMENTS = (
    [v3(timestamp_ns=5, event_type="start"), v3(timestamp_ns=7)],
    [v3(timestamp_ns=6, event_type="stop"), {"timestamp": 1e-8, "memory_mb": 1}],
)


def write_sink(
    folder: Path,
    segments: Any = SEGMENTS,
    sessions: list[dict[str, Any]] | None = None,
    tail: str = "",
) -> None:
    folder.mkdir(exist_ok=True)
    listed = []
    for number, events in enumerate(segments, start=1):
        name = f"segment-{number:06}.jsonl"
        text = "".join(json.dumps(event, sort_keys=True) + "\n" for event in events)
        (folder / name).write_text(text + tail, encoding="utf-8")
        entry = {"filename": name, "event_count": len(events), "size_bytes": len(text)}
        listed.append({**entry, "closed": True, "session_id": "s-1"})
    if sessions is not None:
        manifest = {"schema_version": 2, "format": "stormlog.append_only_telemetry_sink"}
        text = json.dumps({**manifest, "sessions": sessions, "segments": listed}, indent=2)
        (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")


SINKS = ("sink", "sink-manifest", "sink-idle-session", "sink-torn", "sink-damaged", "sink-empty")
INSIDE = ("sink-manifest/manifest.json", "sink-manifest/segment-000001.jsonl", "sink-empty/manifest.json")

sessions = telemetry.load_telemetry_sessions
events = telemetry.load_telemetry_events


def add(name: str, function: Callable[[Path], Any]) -> None:
    if name in CASES:
        raise KeyError(f"two cases are named {name}")
    CASES[name] = function


def add_file(name: str) -> None:
    add(f"load/{name}", lambda folder: sessions(folder / name))
    add(f"load-events/{name}", lambda folder: events(str(folder / name)))


def add_records(name: str) -> None:
    add(
        f"load/records-{name}",
        lambda folder: [
            (one.telemetry_records(), one.resources(), one.correlations()) for one in sessions(folder / name)
        ],
    )


for name in (*FILES, *TEXTS, *SINKS, *INSIDE, "directory", "missing.json"):
    add_file(name)
for name in ("array.json", "two-sessions.json", "legacy.json"):
    add_records(name)
add("load/strict", lambda folder: sessions(folder / "legacy.json", False))
add("load/key", lambda folder: sessions(folder / "keyed.json", events_key="mine"))
add("load/key-missing", lambda folder: sessions(folder / "keyed.json", events_key="yours"))
add("load/key-object", lambda folder: sessions(folder / "bad-keyed.json", events_key="mine"))
add("load/named", lambda folder: events(folder / "two-sessions.json", session_id="s-1"))
add("load/named-missing", lambda folder: events(folder / "array.json", session_id="no"))
