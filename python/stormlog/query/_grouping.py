"""Issues: every sign of trouble in the bundles and events, the same things counted together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stormlog._moment import utc_ns
from stormlog.gap_analysis import analyze_hidden_memory_gaps
from stormlog.issues import (
    ISSUE_STATE_OPEN,
    IssueEvidenceLink,
    IssueFingerprint,
    IssueKind,
    IssueState,
    StormlogIssue,
    categorize_alert_context,
    normalize_text_dimension,
    normalized_error_stem,
)
from stormlog.phases import PhaseReplayIndex, phase_attribution_to_payload, summarize_phase_attribution
from stormlog.query._rows import EventRow, IssueFilter, OOMBundleRow
from stormlog.telemetry_classification import (
    event_backend,
    event_severity,
    is_alert_event,
    is_collector_degradation_event,
    is_oom_event,
)
from stormlog.utils import format_bytes

if TYPE_CHECKING:
    from stormlog.telemetry import LoadedTelemetrySession

_GAPS = {
    "gap_ratio_threshold": 0.05,
    "gap_spike_zscore": 2.0,
    "gap_drift_r_squared": 0.6,
    "gap_fragmentation_ratio": 0.3,
}
_SEVERITY_ORDER = {"critical": 0, "error": 0, "warning": 1, "info": 2}
_LEAST = 9
# Fewer samples show no trend.
_FEWEST_EVENTS = 3


@dataclass
class _Issue:
    fingerprint: IssueFingerprint
    title: str
    severity: str
    evidence: list[IssueEvidenceLink] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class Grouping:
    """Issues while their signs are gathered."""

    def __init__(self) -> None:
        self._issues: dict[str, _Issue] = {}

    def issues(self, filters: IssueFilter, states: Mapping[str, IssueState]) -> list[StormlogIssue]:
        """Those asked for, the worst and latest first."""
        made = (_finished(issue, states) for issue in self._issues.values())
        return sorted((issue for issue in made if _is_wanted(issue, filters)), key=_order)

    def add_bundle(self, row: OOMBundleRow) -> None:
        """A bundle is a sign of an out-of-memory error."""
        link = IssueEvidenceLink(
            session_id=row.session_id,
            timestamp_ns=utc_ns(row.created_at_utc),
            source_path=row.bundle_path,
            source_kind="oom_bundle",
            bundle_path=row.bundle_path,
            metadata={
                "created_at_utc": row.created_at_utc,
                "event_count": row.event_count,
                "session_status": row.session_status,
            },
        )
        about = {"backend": row.backend, "reason": row.reason}
        exception = {"exception_type": row.exception_type, "exception_module": row.exception_module}
        title = "OOM captured by flight recorder"
        self._add("oom", about, title, "critical", link, {**about, **exception})

    def add_event(self, row: EventRow) -> None:
        """What an event is a sign of, if of anything."""
        if is_oom_event(row.event):
            self._add_oom(row)
        elif is_collector_degradation_event(row.event):
            self._add_collector(row)
        elif is_alert_event(row.event):
            self._add_alert(row)

    def add_hidden(self, loaded: LoadedTelemetrySession, source_path: str, source_kind: str) -> None:
        """Memory that the device uses and the allocator does not know of."""
        events = loaded.events
        if len(events) < _FEWEST_EVENTS:
            return
        phases = PhaseReplayIndex.from_events(events)
        for gap in analyze_hidden_memory_gaps(events, _GAPS, format_bytes, {}, phases):
            shown = next((one for one in events if one.timestamp_ns == gap.evidence_timestamp_ns), None)
            phase = summarize_phase_attribution(gap.phase_attribution)
            about = {
                "classification": gap.classification,
                "severity": gap.severity,
                "phase": phase,
                "collector": "unknown" if shown is None else shown.collector,
                "backend": "unknown" if shown is None else event_backend(shown),
            }
            link = IssueEvidenceLink(
                session_id=loaded.summary.session_id,
                timestamp_ns=gap.evidence_timestamp_ns,
                rank=None if shown is None else shown.rank,
                source_path=source_path,
                source_kind=source_kind,
                event_type="sample" if shown is None else shown.event_type,
                metadata={
                    "classification": gap.classification,
                    "confidence": gap.confidence,
                    "phase_attribution": phase_attribution_to_payload(gap.phase_attribution),
                },
            )
            details = {
                "classification": gap.classification,
                "description": gap.description,
                "confidence": gap.confidence,
                "evidence": dict(gap.evidence),
                "phase": phase,
            }
            title = f"Hidden-memory anomaly: {gap.classification}"
            self._add("hidden_memory_anomaly", about, title, gap.severity, link, details)

    def _add_oom(self, row: EventRow) -> None:
        event = row.event
        about = {"backend": event_backend(event), "reason": event.metadata.get("oom_reason")}
        path = event.metadata.get("oom_dump_path")
        bundle = path if isinstance(path, str) and path else None
        link = _link(row, bundle_path=bundle, metadata={"context": event.context})
        details = {**about, "collector": event.collector, "device_id": event.device_id}
        self._add("oom", about, "OOM telemetry event", "critical", link, details)

    def _add_collector(self, row: EventRow) -> None:
        event, metadata = row.event, row.event.metadata
        health = normalize_text_dimension(metadata.get("collector_health_status"), default="degraded")
        partial = metadata.get("collector_partial_fields")
        about = {
            "collector": event.collector,
            "backend": event_backend(event),
            "health_status": health,
            "partial_fields": list(partial) if isinstance(partial, (list, tuple)) else [],
            "error_stem": normalized_error_stem(metadata.get("collector_last_error")),
        }
        kept = ("collector_consecutive_failures", "collector_next_retry_epoch_s")
        link = _link(row, metadata={name: metadata.get(name) for name in kept})
        severity = "critical" if health == "unhealthy" else "warning"
        self._add("collector_degradation", about, "Collector degradation", severity, link, about)

    def _add_alert(self, row: EventRow) -> None:
        event, severity = row.event, event_severity(row.event)
        category = categorize_alert_context(event.context)
        details = {
            "event_type": event.event_type,
            "collector": event.collector,
            "backend": event_backend(event),
            "category": category,
        }
        link = _link(row, metadata={"context": event.context})
        title = f"Alert: {category.replace('_', ' ')}"
        self._add("alert", {**details, "severity": severity}, title, severity, link, details)

    def _add(
        self,
        kind: IssueKind,
        about: Mapping[str, Any],
        title: str,
        severity: str,
        link: IssueEvidenceLink,
        details: Mapping[str, Any],
    ) -> None:
        fingerprint = IssueFingerprint(kind, about)
        issue = self._issues.setdefault(fingerprint.fingerprint_id, _Issue(fingerprint, title, severity))
        issue.evidence.append(link)
        issue.details.update(details)
        if _rank(severity) < _rank(issue.severity):
            issue.severity = severity


def _link(row: EventRow, *, metadata: dict[str, Any], bundle_path: str | None = None) -> IssueEvidenceLink:
    event = row.event
    return IssueEvidenceLink(
        session_id=event.session_id,
        timestamp_ns=event.timestamp_ns,
        rank=event.rank,
        source_path=row.source_path,
        source_kind=row.source_kind,
        event_type=event.event_type,
        bundle_path=bundle_path,
        metadata={**metadata, "session_status": row.session_status},
    )


def _finished(issue: _Issue, states: Mapping[str, IssueState]) -> StormlogIssue:
    seen = [link.timestamp_ns for link in issue.evidence if link.timestamp_ns is not None]
    return StormlogIssue(
        fingerprint=issue.fingerprint,
        title=issue.title,
        severity=issue.severity,
        hit_count=len(issue.evidence),
        first_seen_ns=min(seen, default=None),
        last_seen_ns=max(seen, default=None),
        affected_sessions=_sessions(issue.evidence),
        representative_evidence=issue.evidence[0],
        evidence=issue.evidence,
        state=states.get(issue.fingerprint.fingerprint_id, ISSUE_STATE_OPEN),
        details=issue.details,
    )


def _sessions(links: Iterable[IssueEvidenceLink]) -> tuple[str, ...]:
    return tuple(link.session_id for link in links if link.session_id is not None)


def _is_wanted(issue: StormlogIssue, filters: IssueFilter) -> bool:
    asked = (("fingerprint_id", filters.fingerprint_id), ("kind", filters.kind), ("state", filters.state))
    return (
        all(wanted is None or getattr(issue, name) == wanted for name, wanted in asked)
        and filters.severity in (None, issue.severity)
        and (filters.session_id is None or filters.session_id in issue.affected_sessions)
    )


def _rank(severity: str) -> int:
    return _SEVERITY_ORDER.get(severity, _LEAST)


def _order(issue: StormlogIssue) -> tuple[int, int, str]:
    last = -1 if issue.last_seen_ns is None else issue.last_seen_ns
    return _rank(issue.severity), -last, issue.fingerprint_id
