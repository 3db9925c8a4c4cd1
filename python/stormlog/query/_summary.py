"""One number a group: peaks, counts, how the hidden memory grew.

Where every source is a sink whose rollups are fresh, what they can answer is taken from them: a long
recording is not read for a number that is already known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from stormlog import _native
from stormlog.query._rows import EventRow, SummaryRow
from stormlog.telemetry_classification import COLLECTOR_TRANSITION_TYPES, is_alert_event
from stormlog.telemetry_rollups import SessionRollup

SummaryMetric = Literal[
    "session_count_by_status",
    "peak_allocator_allocated_bytes",
    "peak_allocator_reserved_bytes",
    "peak_device_used_bytes",
    "alert_count",
    "collector_degradation_transitions",
    "interrupted_sessions_with_oom_bundles",
    "hidden_memory_gap_growth",
]
SummaryGroupBy = Literal["session", "session-rank", "rank", "status"]

# Session, rank, status; those the group goes by.
_Group = tuple[str | None, int | None, str | None]
# A number and further columns.
_Found = tuple[int, Mapping[str, Any]]

_PEAKS = {
    "peak_allocator_allocated_bytes": "allocator_allocated_bytes",
    "peak_allocator_reserved_bytes": "allocator_reserved_bytes",
    "peak_device_used_bytes": "device_used_bytes",
}
COUNTED: dict[str, Callable[[EventRow], bool]] = {
    "alert_count": lambda row: is_alert_event(row.event),
    "collector_degradation_transitions": lambda row: row.event.event_type in COLLECTOR_TRANSITION_TYPES,
}


def from_events(events: Iterable[EventRow], metric: str, group_by: str) -> list[SummaryRow]:
    """The summary by looking at every event, which come in the order of time."""
    if metric in _PEAKS:
        peaks = ((_group(row, group_by), *_peak(row, _PEAKS[metric])) for row in events)
        return _rows(metric, group_by, _highest(peaks))
    if metric in COUNTED:
        counts: dict[_Group, int] = defaultdict(int)
        for row in filter(COUNTED[metric], events):
            counts[_group(row, group_by)] += 1
        return _rows(metric, group_by, {group: (count, {}) for group, count in counts.items()})
    if metric == "hidden_memory_gap_growth":
        return _rows(metric, group_by, _growth(events, group_by))
    raise ValueError(f"unsupported summary metric: {metric}")


def from_buffers(
    sessions: Sequence[tuple[str, _native.telemetry.EventBuffer]] | None, metric: str, group_by: str
) -> list[SummaryRow] | None:
    """The summary without a row an event, of sessions by their state; None where it takes rows."""
    if sessions is None:
        return None
    if metric in _PEAKS:
        peaks = [
            (at_ns, _group_of(session_id, rank, status, group_by), value)
            for status, buffer in sessions
            for session_id, rank, value, at_ns in _native.telemetry.counter_peaks(buffer, _PEAKS[metric])
        ]
        in_time = sorted(peaks, key=lambda peak: peak[0])
        return _rows(metric, group_by, _highest((group, value, at_ns) for at_ns, group, value in in_time))
    if metric == "hidden_memory_gap_growth":
        found = _buffer_growth(sessions, group_by)
        return None if found is None else _rows(metric, group_by, found)
    return None


def from_rollups(sessions: Sequence[SessionRollup], metric: str, group_by: str) -> list[SummaryRow] | None:
    """The summary by what rollups hold; None where they do not hold it."""
    by_rank = group_by in {"rank", "session-rank"}
    if metric in _PEAKS:
        return _rows(metric, group_by, _highest(_rollup_peaks(sessions, _PEAKS[metric], group_by)))
    if metric in COUNTED and not by_rank:
        counts: dict[_Group, int] = defaultdict(int)
        for session in sessions:
            is_alerts = metric == "alert_count"
            count = session.alerts.total_count if is_alerts else session.collector_health.transition_count
            if count > 0:
                counts[_rollup_group(session, None, group_by)] += count
        return _rows(metric, group_by, {group: (count, {}) for group, count in counts.items()})
    # Over several sessions the first and last gap of a rank are of different programs.
    if metric == "hidden_memory_gap_growth" and by_rank and (group_by != "rank" or len(sessions) == 1):
        return _rows(metric, group_by, _rollup_growth(sessions, group_by))
    return None


def _group(row: EventRow, group_by: str) -> _Group:
    return _group_of(row.event.session_id, row.event.rank, row.session_status, group_by)


def _group_of(session_id: str, rank: int, status: str, group_by: str) -> _Group:
    if group_by == "rank":
        return None, rank, None
    if group_by == "session-rank":
        return session_id, rank, None
    return (None, None, status) if group_by == "status" else (session_id, None, None)


def _rollup_group(session: SessionRollup, rank: int | None, group_by: str) -> _Group:
    if group_by == "status":
        return None, None, session.session.status
    return None if group_by == "rank" else session.session.session_id, rank, None


def _peak(row: EventRow, name: str) -> tuple[int | None, int | None]:
    return getattr(row.event, name), row.event.timestamp_ns


def _rollup_peaks(
    sessions: Sequence[SessionRollup], name: str, group_by: str
) -> Iterator[tuple[_Group, int | None, int | None]]:
    for session in sessions:
        if group_by in {"rank", "session-rank"}:
            for rank in session.ranks:
                peak = getattr(rank.counters, name)
                yield _rollup_group(session, rank.rank, group_by), peak.value, peak.timestamp_ns
        else:
            peak = getattr(session.counters, name)
            yield _rollup_group(session, None, group_by), peak.value, peak.timestamp_ns


def _highest(peaks: Iterable[tuple[_Group, int | None, int | None]]) -> dict[_Group, _Found]:
    """Of each group the highest known value and when it was first reached."""
    best: dict[_Group, _Found] = {}
    for group, value, at_ns in peaks:
        if value is not None and (group not in best or value > best[group][0]):
            best[group] = (value, {"timestamp_ns": at_ns})
    return best


def _growth(events: Iterable[EventRow], group_by: str) -> dict[_Group, _Found]:
    gaps: dict[_Group, list[int]] = defaultdict(list)
    for row in events:
        used, reserved = row.event.device_used_bytes, row.event.allocator_reserved_bytes
        if row.event.event_type == "sample" and used is not None and reserved is not None:
            gaps[_group(row, group_by)].append(used - reserved)
    return {
        group: _grown(values[-1] - values[0], values[0], values[-1], max(values), len(values))
        for group, values in gaps.items()
    }


def _buffer_growth(
    sessions: Sequence[tuple[str, _native.telemetry.EventBuffer]], group_by: str
) -> dict[_Group, _Found] | None:
    """The growth in each group; None where two gaps of a moment leave open which is the first or the last."""
    parts: dict[_Group, list[tuple[str, int, int, int, int, int, int, int]]] = defaultdict(list)
    for status, buffer in sessions:
        for part in _native.telemetry.hidden_gaps(buffer):
            parts[_group_of(part[0], part[1], status, group_by)].append(part)
    found = {}
    for group, gaps in parts.items():
        firsts = sorted((first_ns, session_id, first) for session_id, _, first_ns, first, *_ in gaps)
        lasts = sorted((last_ns, session_id, last) for session_id, _, _, _, last_ns, last, _, _ in gaps)
        if len(gaps) > 1 and (firsts[0][:2] == firsts[1][:2] or lasts[-1][:2] == lasts[-2][:2]):
            return None
        first, last = firsts[0][2], lasts[-1][2]
        most, count = max(part[6] for part in gaps), sum(part[7] for part in gaps)
        found[group] = _grown(last - first, first, last, most, count)
    return found


def _rollup_growth(sessions: Sequence[SessionRollup], group_by: str) -> dict[_Group, _Found]:
    found = {}
    for session in sessions:
        for rank in session.ranks:
            if rank.hidden_gap_delta_bytes is not None:
                gaps = (rank.hidden_gap_first_bytes, rank.hidden_gap_latest_bytes, rank.hidden_gap_peak_bytes)
                grown = _grown(rank.hidden_gap_delta_bytes, *gaps, rank.sample_count)
                found[_rollup_group(session, rank.rank, group_by)] = grown
    return found


def _grown(value: int, first: int | None, latest: int | None, peak: int | None, samples: int) -> _Found:
    return value, {
        "first_gap_bytes": first,
        "latest_gap_bytes": latest,
        "peak_gap_bytes": peak,
        "sample_count": samples,
    }


def _rows(metric: str, group_by: str, found: Mapping[_Group, _Found]) -> list[SummaryRow]:
    rows = []
    for group in sorted(found, key=str):
        (session_id, rank, status), (value, details) = group, found[group]
        rows.append(SummaryRow(metric, group_by, value, session_id, rank, status, details))
    return rows
