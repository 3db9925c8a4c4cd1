"""What else happened around a moment, and how surely it belongs to it.

Everything that can be pointed at becomes evidence first; then it is judged against the moment: near enough in
time, and of the same session, of the same job, or only of the same time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from stormlog._moment import utc_ns
from stormlog.correlation import (
    CLOCK_DOMAIN_UNIX_EPOCH_NS,
    CLOCK_NORMALIZATION_PRODUCER_EPOCH_NS,
    CorrelationEvidence,
    CorrelationFilter,
    ExternalAttachment,
)
from stormlog.query._catalog import CatalogSource
from stormlog.query._rows import EventRow, OOMBundleRow, SessionRow
from stormlog.session import SessionSummary
from stormlog.telemetry import project_telemetry_event
from stormlog.telemetry_classification import event_severity, is_alert_event
from stormlog.telemetry_rollups import TelemetryRollupFile
from stormlog.timeline_markers import TimelineMarker, timeline_marker_to_dict

_CONFIDENCE_ORDER = {"high": 0, "medium": 1, "low": 2}


def anchor(filters: CorrelationFilter, row: EventRow | None) -> dict[str, Any]:
    """The moment that is asked about: a record's where one is named, else the time and identity given."""
    event = None if row is None else row.event
    return {
        "at_ns": filters.at_ns if event is None else event.timestamp_ns,
        "record_id": filters.record_id,
        "session_id": filters.session_id if event is None else event.session_id,
        "job_id": filters.job_id if event is None else event.job_id,
        "rank": filters.rank if event is None else event.rank,
        "world_size": None if event is None else event.world_size,
        "source_path": None if row is None else row.source_path,
        "source_kind": None if row is None else row.source_kind,
        "event_type": None if event is None else event.event_type,
        "scope": filters.scope,
        "window_ns": filters.window_ns,
        "clock_domain": CLOCK_DOMAIN_UNIX_EPOCH_NS,
        "clock_normalization": CLOCK_NORMALIZATION_PRODUCER_EPOCH_NS,
        "clock_note": "correlation does not rewrite cross-host clocks",
    }


def judged(
    candidates: Iterable[CorrelationEvidence], moment: Mapping[str, Any], filters: CorrelationFilter
) -> list[CorrelationEvidence]:
    """What belongs to the moment, the surest and nearest first."""
    found = [row for one in candidates if (row := _judge(one, moment, filters)) is not None]
    at_ns = moment["at_ns"]
    found.sort(
        key=lambda row: (_CONFIDENCE_ORDER[row.confidence], _distance(row, at_ns), row.kind, row.title)
    )
    return found[: filters.limit]


def of_event(row: EventRow) -> CorrelationEvidence:
    """An event."""
    event = row.event
    record = project_telemetry_event(event)
    return _of_row(
        row,
        f"event:{record.record_id}",
        "telemetry_event",
        f"{event.event_type} telemetry event",
        {
            "record_id": record.record_id,
            "observed_timestamp_ns": record.observed_timestamp_ns,
            "event_type": event.event_type,
            "collector": event.collector,
            "context": event.context,
            "session_status": row.session_status,
            "metadata": event.metadata,
        },
    )


def of_alert(row: EventRow) -> CorrelationEvidence | None:
    """An event that is an alert, once more as that."""
    event = row.event
    if not is_alert_event(event):
        return None
    return _of_row(
        row,
        _id("alert", event.session_id, event.timestamp_ns, event.rank, event.event_type),
        "alert",
        f"Alert: {event.event_type}",
        {
            "event_type": event.event_type,
            "severity": event_severity(event),
            "collector": event.collector,
            "context": event.context,
            "metadata": event.metadata,
        },
    )


def of_marker(
    marker: TimelineMarker, job_id: str | None, source_path: str, source_kind: str
) -> CorrelationEvidence:
    """A phase, or the beginning or end of a session."""
    return CorrelationEvidence(
        evidence_id=_id("marker", marker.session_id, marker.kind, marker.start_ns, marker.rank, marker.label),
        kind="timeline_marker",
        title=marker.label,
        session_id=marker.session_id,
        job_id=job_id,
        rank=marker.rank,
        world_size=marker.world_size,
        start_ns=marker.start_ns,
        end_ns=marker.end_ns,
        source_path=source_path,
        source_kind=source_kind,
        metadata=timeline_marker_to_dict(marker),
    )


def of_bundle(row: OOMBundleRow, session: SessionRow | None) -> CorrelationEvidence:
    """What was left at a death."""
    made_ns = utc_ns(row.created_at_utc)
    return CorrelationEvidence(
        evidence_id=_id("oom", row.bundle_path, row.session_id),
        kind="oom_bundle",
        title="OOM bundle",
        session_id=row.session_id,
        job_id=None if session is None else session.job_id,
        rank=None if session is None else session.rank,
        world_size=None if session is None else session.world_size,
        start_ns=made_ns,
        end_ns=made_ns,
        source_path=row.bundle_path,
        source_kind="oom_bundle",
        metadata=row.as_dict(),
    )


def of_diagnosis(source: CatalogSource, summary: SessionSummary) -> CorrelationEvidence:
    """A bundle of `diagnose`."""
    manifest = None if source.manifest_path is None else str(source.manifest_path)
    return CorrelationEvidence(
        evidence_id=_id("diagnose", manifest, summary.session_id),
        kind="diagnose_bundle",
        title="Diagnose bundle",
        session_id=summary.session_id,
        job_id=summary.job_id,
        rank=summary.rank,
        world_size=summary.world_size,
        start_ns=summary.started_at_ns,
        end_ns=summary.ended_at_ns,
        source_path=str(source.path),
        source_kind=source.source_kind,
        metadata={"manifest_path": manifest, "session_status": summary.status},
    )


def of_rollups(rollups: TelemetryRollupFile, source_path: str) -> list[CorrelationEvidence]:
    """The windows of a sink's rollups."""
    counts = ("event_count", "sample_count", "rank_count", "alert_count", "collector_transition_count")
    found = []
    for session in rollups.sessions:
        summary = session.session
        for window in session.windows:
            metadata = {name: getattr(window, name) for name in (*counts, "oom_count")}
            found.append(
                CorrelationEvidence(
                    evidence_id=_id("rollup", summary.session_id, window.index, window.start_ns),
                    kind="rollup_window",
                    title=f"Rollup window {window.index}",
                    session_id=summary.session_id,
                    job_id=summary.job_id,
                    rank=None,
                    world_size=summary.world_size,
                    start_ns=window.start_ns,
                    end_ns=window.end_ns,
                    source_path=source_path,
                    source_kind="rollup",
                    metadata={**metadata, "window_duration_ns": rollups.window_duration_ns},
                )
            )
    return found


def of_attachment(attachment: ExternalAttachment) -> CorrelationEvidence:
    """What a sidecar names."""
    made_ns = utc_ns(attachment.created_at_utc)
    start_ns = made_ns if attachment.start_ns is None else attachment.start_ns
    place = (attachment.sidecar_path, attachment.title, attachment.url, attachment.path)
    return CorrelationEvidence(
        evidence_id=_id("attachment", attachment.attachment_id, *place),
        kind="attachment",
        title=attachment.title,
        session_id=attachment.session_id,
        job_id=attachment.job_id,
        rank=attachment.rank,
        world_size=None,
        start_ns=start_ns,
        end_ns=start_ns if attachment.end_ns is None else attachment.end_ns,
        source_path=attachment.url or attachment.path or attachment.sidecar_path,
        source_kind="attachment",
        metadata=attachment.as_dict(),
    )


def _of_row(
    row: EventRow, evidence_id: str, kind: str, title: str, metadata: Mapping[str, Any]
) -> CorrelationEvidence:
    event = row.event
    return CorrelationEvidence(
        evidence_id=evidence_id,
        kind=kind,
        title=title,
        session_id=event.session_id,
        job_id=event.job_id,
        rank=event.rank,
        world_size=event.world_size,
        start_ns=event.timestamp_ns,
        end_ns=None,
        source_path=row.source_path,
        source_kind=row.source_kind,
        metadata=metadata,
    )


def _id(*parts: object) -> str:
    digest = hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()
    return f"evidence-{digest[:24]}"


def _judge(
    one: CorrelationEvidence, moment: Mapping[str, Any], filters: CorrelationFilter
) -> CorrelationEvidence | None:
    if not _is_asked_for(one, filters):
        return None
    session, job = moment["session_id"], moment["job_id"]
    is_session = session is not None and one.session_id == session
    is_job = filters.scope == "distributed" and job is not None and one.job_id == job
    is_timed = one.start_ns is not None or one.end_ns is not None
    if is_timed and _distance(one, moment["at_ns"]) > filters.window_ns:
        return None
    # Without a time only what it says about itself makes it belong here.
    if not is_timed and not (is_session or is_job):
        return None
    if _differ(session, one.session_id) and not is_job:
        return None
    if _differ(job, one.job_id) and one.session_id != session:
        return None
    reasons = ["overlaps_anchor_window" if is_timed else "identifier_only_no_time"]
    if not (is_session or is_job):
        reasons.append("time_only_missing_shared_identifier")
        return replace(one, confidence="low", reasons=tuple(reasons))
    reasons.append("same_session" if is_session else "same_job_distributed")
    is_same_rank = moment["rank"] is None or one.rank in (None, moment["rank"])
    crossed = "cross_rank_same_session" if is_session else "cross_rank_same_job"
    reasons.append("same_rank_or_rank_agnostic" if is_same_rank else crossed)
    return replace(one, confidence="high" if is_same_rank else "medium", reasons=tuple(reasons))


def _is_asked_for(one: CorrelationEvidence, filters: CorrelationFilter) -> bool:
    return (
        (not filters.kinds or one.kind in filters.kinds)
        and filters.session_id in (None, one.session_id)
        and filters.job_id in (None, one.job_id)
        and (filters.rank is None or one.rank in (None, filters.rank))
    )


def _differ(first: str | None, second: str | None) -> bool:
    return first is not None and second is not None and first != second


def _distance(one: CorrelationEvidence, at_ns: int) -> int:
    """How far from the moment it is; 0 where it holds the moment or has no time."""
    times = [time for time in (one.start_ns, one.end_ns) if time is not None]
    if not times or min(times) <= at_ns <= max(times):
        return 0
    return min(abs(time - at_ns) for time in times)
