"""The questions, as 0.4.3 asks them: each goes to the native catalog, its rows become dataclasses here."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stormlog.correlation import (
    AttachmentFilter,
    CorrelationEvidence,
    CorrelationFilter,
    CorrelationResult,
    ExternalAttachment,
)
from stormlog.issues import IssueEvidenceLink, IssueFingerprint, StormlogIssue
from stormlog.query._catalog import ArtifactCatalog
from stormlog.query._rows import (
    EventFilter,
    EventRow,
    IssueFilter,
    OOMBundleFilter,
    OOMBundleRow,
    SessionFilter,
    SessionRow,
    SummaryGroupBy,
    SummaryMetric,
    SummaryRow,
)
from stormlog.run_catalog import RunAttachmentFilter, RunAttachmentRow, RunFilter, RunRow
from stormlog.telemetry import TelemetryEventV4


def open(paths: Sequence[str | Path]) -> QueryStore:
    """What is at some paths, ready to be asked."""
    return QueryStore(ArtifactCatalog(paths))


class QueryStore:
    """Answers about a catalogue. Every answer is a list of rows in a fixed order."""

    def __init__(self, catalog: ArtifactCatalog) -> None:
        self.catalog = catalog
        self._native = catalog._native

    def list_runs(self, filters: RunFilter | None = None) -> list[RunRow]:
        """The runs, newest first: described, recorded by `stormlog run`, or made up of sessions."""
        return [_run(row) for row in self._native.runs(**vars(filters or RunFilter()))]

    def list_run_attachments(self, filters: RunAttachmentFilter | None = None) -> list[RunAttachmentRow]:
        """What belongs to the runs, by run, session, rank and kind."""
        rows = self._native.run_attachments(**vars(filters or RunAttachmentFilter()))
        return [RunAttachmentRow(**row) for row in rows]

    def list_sessions(self, filters: SessionFilter | None = None) -> list[SessionRow]:
        """The sessions, newest first; one that is in several sources has a row for each."""
        return [SessionRow(**row) for row in self._native.sessions(**vars(filters or SessionFilter()))]

    def query_events(self, filters: EventFilter | None = None) -> list[EventRow]:
        """The events in the order of time."""
        found = self._native.events(**vars(filters or EventFilter()))
        origins = [(one.source_path, one.source_kind, one.session_status) for one in found.origins]
        event = found.events.event
        with _uncollected():
            return [
                EventRow(event(place, TelemetryEventV4), *origins[number])
                for place, number in enumerate(found.origin_of)
            ]

    def list_oom_bundles(self, filters: OOMBundleFilter | None = None) -> list[OOMBundleRow]:
        """The OOM bundles, oldest first."""
        return [OOMBundleRow(**row) for row in self._native.bundles(**vars(filters or OOMBundleFilter()))]

    def list_attachments(self, filters: AttachmentFilter | None = None) -> list[ExternalAttachment]:
        """What sidecar files name, in the order of time."""
        rows = self._native.attachments(**vars(filters or AttachmentFilter()))
        return [ExternalAttachment(**row) for row in rows]

    def correlate(self, filters: CorrelationFilter) -> CorrelationResult:
        """What else happened around a moment or a record; ValueError where neither is named or known."""
        anchor, rows = self._native.correlate(**vars(filters))
        evidence = [CorrelationEvidence(**{**row, "reasons": tuple(row["reasons"])}) for row in rows]
        return CorrelationResult(anchor, evidence, [warning.message for warning in self.catalog.warnings])

    def list_issues(
        self, filters: IssueFilter | None = None, *, state_overrides: Mapping[str, str] | None = None
    ) -> list[StormlogIssue]:
        """What went wrong, the worst first; a state given for a fingerprint takes the place of `open`."""
        states = list((state_overrides or {}).items())
        return [_issue(row) for row in self._native.issues(states, **vars(filters or IssueFilter()))]

    def summarize(self, metric: SummaryMetric, *, group_by: SummaryGroupBy | None = None) -> list[SummaryRow]:
        """One number a group; ValueError for an unknown metric. Unknown counters have no part in it."""
        return [_summary(row) for row in self._native.summarize(metric, group_by)]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Around making many objects that stay: to search them for garbage takes longer than to make them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run(row: dict[str, Any]) -> RunRow:
    lists = {name: tuple(row[name]) for name in ("sessions", "ranks", "tags")}
    return RunRow(**{**row, **lists})


def _issue(row: dict[str, Any]) -> StormlogIssue:
    fingerprint = row["fingerprint"]
    links = [IssueEvidenceLink(**link) for link in row["evidence"]]
    names = ("title", "severity", "hit_count", "first_seen_ns", "last_seen_ns", "affected_sessions", "state")
    return StormlogIssue(
        fingerprint=IssueFingerprint(
            fingerprint["kind"], fingerprint["dimensions"], fingerprint["schema_version"]
        ),
        representative_evidence=links[0],
        evidence=links,
        details=row["details"],
        **{name: row[name] for name in names},
    )


def _summary(row: dict[str, Any]) -> SummaryRow:
    names = ("metric", "group_by", "value", "session_id", "rank", "status")
    details = {name: value for name, value in row.items() if name not in names}
    return SummaryRow(**{name: row[name] for name in names}, details=details)
