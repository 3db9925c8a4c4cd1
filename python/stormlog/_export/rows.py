"""Rows, names and pages that a tracking service gets of a session: pure, and the names are 0.4.3's."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog.session import SessionSummary, session_summary_from_dict

MOST_POINTS = 250
MOST_ROWS = 250
ALERTS = frozenset({"warning", "critical", "error", "peak"})

# Key of the tracker's statistics by the name of the metric, where it is not `stormlog_<key>`.
_RENAMED = {
    "peak_memory": "stormlog_peak_memory_bytes",
    "current_memory_allocated": "stormlog_current_memory_allocated_bytes",
    "current_memory_reserved": "stormlog_current_memory_reserved_bytes",
    "rollover_count": "stormlog_sink_rollover_count",
    "pruned_segment_count": "stormlog_sink_pruned_segment_count",
    "pruned_bytes": "stormlog_sink_pruned_bytes",
    "final_retained_files": "stormlog_sink_retained_files",
    "final_retained_bytes": "stormlog_sink_retained_bytes",
}
_COUNTED = (
    *_RENAMED,
    "total_events",
    "alert_count",
    "memory_utilization_percent",
    "total_allocations",
    "total_deallocations",
    "total_allocation_bytes",
    "total_deallocation_bytes",
    "tracking_duration_seconds",
    "allocations_per_second",
    "bytes_allocated_per_second",
    "history_retained_events",
    "history_dropped_events",
)


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under names."""

    columns: tuple[str, ...]
    rows: list[list[Any]]


def session_fields(session: SessionSummary | None) -> dict[str, Any]:
    """The identity of its process."""
    if session is None:
        return {}
    known = {
        "stormlog_session_id": session.session_id,
        "stormlog_session_source": session.source,
        "stormlog_session_status": session.status,
        "stormlog_rank": session.rank,
        "stormlog_local_rank": session.local_rank,
        "stormlog_world_size": session.world_size,
        "stormlog_job_id": session.job_id,
    }
    return {name: value for name, value in known.items() if value is not None}


def run_name(command: str, session: SessionSummary | None) -> str:
    """The name of a run that was given none."""
    return command if session is None else f"{command}-{session.session_id[:8]}"


def slug(session: SessionSummary | None) -> str:
    """The session as part of a name."""
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", session.session_id if session else "") or "session"


def existing(path: str | Path | None, *, directory: bool) -> Path | None:
    """The path, if that is there."""
    if path is None:
        return None
    found = Path(path)
    return found if (found.is_dir() if directory else found.is_file()) else None


def text_or_none(value: Any) -> str | None:
    """A flag's text; blanks are none."""
    return value.strip() or None if isinstance(value, str) else None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty when there is none."""
    try:
        with os.fdopen(_native.files.open_regular(path), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def session_of(manifest: Mapping[str, Any]) -> SessionSummary | None:
    """The session of a bundle."""
    found = manifest.get("session")
    try:
        return session_summary_from_dict(found) if isinstance(found, Mapping) else None
    except ValueError:
        return None


def metrics(stats: Mapping[str, Any]) -> dict[str, Any]:
    """The tracker's statistics by the names of metrics."""
    known = {key: stats.get(key) for key in _COUNTED}
    return {
        _RENAMED.get(key, f"stormlog_{key}"): value
        for key, value in known.items()
        if isinstance(value, int | float)
    }


def _of(event: Any, *names: str) -> Any:
    """A field of an event, be it a record or an object, under the first name it has."""
    for name in names:
        value = event.get(name) if isinstance(event, Mapping) else getattr(event, name, None)
        if value is not None:
            return value
    return None


def _bytes(event: Any, *names: str) -> int | None:
    value = _of(event, *names)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(event: Any) -> float | None:
    at = _of(event, "timestamp")
    if at is None:
        at_ns = _of(event, "timestamp_ns")
        return at_ns / 1e9 if isinstance(at_ns, int) else None
    return float(at) if isinstance(at, int | float) else None


def timeline(events: Iterable[Any]) -> list[dict[str, Any]]:
    """At most `MOST_POINTS` of the events over time: all alerts, the last one, and evenly the rest."""
    points: list[dict[str, Any]] = []
    start: float | None = None
    for event in events:
        at = _seconds(event)
        if at is None:
            continue
        start = at if start is None else start
        allocated = _bytes(event, "memory_allocated", "allocator_allocated_bytes")
        reserved = _bytes(event, "memory_reserved", "allocator_reserved_bytes")
        used = _bytes(event, "device_used", "device_used_bytes")
        if used is None:
            used = max((value for value in (allocated, reserved) if value is not None), default=None)
        total = _bytes(event, "device_total", "device_total_bytes")
        points.append(
            {
                "sample_index": len(points),
                "elapsed_seconds": at - start,
                "event_type": str(_of(event, "event_type", "type") or "sample"),
                "allocated_bytes": allocated,
                "reserved_bytes": reserved,
                "change_bytes": _bytes(event, "memory_change", "allocator_change_bytes"),
                "device_used_bytes": used,
                "utilization_percent": used / total * 100 if used is not None and total else None,
                "context": _of(event, "context"),
                "rank": _of(event, "rank"),
            }
        )
    return _thinned(points)


def _thinned(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(points) <= MOST_POINTS:
        return points
    kept = [at for at, point in enumerate(points) if point["event_type"] in ALERTS or at == len(points) - 1]
    kept = kept[-MOST_POINTS:]
    others = sorted(set(range(len(points))) - set(kept))
    room = MOST_POINTS - len(kept)
    kept += [others[at * len(others) // room] for at in range(room)]
    return [points[at] for at in sorted(kept)]


def series_point(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point by the names of metrics."""
    names = (
        "elapsed_seconds",
        "allocated_bytes",
        "reserved_bytes",
        "change_bytes",
        "device_used_bytes",
        "utilization_percent",
    )
    found = {f"stormlog_timeline_{name}": point[name] for name in names if point[name] is not None}
    return {"step": point["sample_index"], **found}


def timeline_table(points: Sequence[Mapping[str, Any]]) -> Table:
    """All points, of which there must be one."""
    renamed = {"allocated_bytes", "reserved_bytes", "change_bytes"}
    columns = tuple(f"memory_{name}" if name in renamed else name for name in points[0])
    return Table(columns, [list(point.values()) for point in points])


def alerts(events: Iterable[Any]) -> Table:
    """The last alerts."""
    rows = [
        [
            _seconds(event),
            _of(event, "event_type", "type"),
            _of(event, "context"),
            _bytes(event, "memory_allocated", "allocator_allocated_bytes"),
            _bytes(event, "memory_reserved", "allocator_reserved_bytes"),
            _bytes(event, "memory_change", "allocator_change_bytes"),
            _of(event, "job_id"),
            _of(event, "rank"),
        ]
        for event in events
        if _of(event, "event_type", "type") in ALERTS
    ]
    memory = ("memory_allocated_bytes", "memory_reserved_bytes", "memory_change_bytes")
    return Table(("timestamp_s", "event_type", "context", *memory, "job_id", "rank"), rows[-MOST_ROWS:])


def tensors(found: Mapping[str, Any]) -> Table:
    """The storages a snapshot attributes to tensors, largest first."""
    rows: list[list[Any]] = []
    entries = found.get("attributed_storage_pointers")
    for entry in entries if isinstance(entries, list) else ():
        held = [tensor for tensor in entry.get("tensors") or () if isinstance(tensor, Mapping)]
        first = held[0] if held else {}
        names = ", ".join(str(name) for name in (entry.get("names") or ())[:3])
        size = sum(tensor.get("size_bytes") or 0 for tensor in held)
        count = entry.get("tensor_count", len(held))
        pointer, shape, dtype = entry.get("storage_ptr", ""), first.get("shape", ""), first.get("dtype", "")
        rows.append([names or "<unnamed>", str(pointer), count, size, str(shape), str(dtype)])
    rows.sort(key=lambda row: -int(row[3]))
    return Table(("name", "storage_ptr", "tensor_count", "total_size_bytes", "shape", "dtype"), rows)


def dashboard(points: Sequence[Mapping[str, Any]]) -> str:
    """Memory over time as one page without scripts, and the alerts below it."""
    width, height = 960.0, 320.0
    longest = max((point["elapsed_seconds"] for point in points), default=0.0) or 1.0
    lines = {"device_used_bytes": "#2f6fde", "reserved_bytes": "#c28a1d", "allocated_bytes": "#2c9a5b"}
    top = max((point[name] or 0 for point in points for name in lines), default=0) or 1
    drawn = []
    for name, colour in lines.items():
        places = [
            f"{point['elapsed_seconds'] / longest * width:.1f},{height - point[name] / top * height:.1f}"
            for point in points
            if point[name] is not None
        ]
        if places:
            line = f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(places)}"/>'
            drawn.append(f"{line}<title>{name}</title>")
    items = "".join(
        f"<li>{point['elapsed_seconds']:.1f} s {_native.text.escape_markup(point['event_type'])}: "
        f"{_native.text.escape_markup(str(point['context'] or ''))}</li>"
        for point in points
        if point["event_type"] in ALERTS
    )
    legend = " ".join(f'<span style="color:{colour}">■ {name}</span>' for name, colour in lines.items())
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Stormlog Memory Timeline</title>'
        f"<h1>Memory over {longest:.1f} s, top {top / (1 << 20):,.1f} MiB</h1><p>{legend}</p>"
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="100%">{"".join(drawn)}</svg>'
        f"<ul>{items}</ul></html>"
    )
