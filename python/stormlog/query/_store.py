"""The questions themselves. Each source is loaded once, when a question needs its events."""

from __future__ import annotations

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from stormlog import _native
from stormlog._telemetry.event_list import in_order, passing, untouched
from stormlog.correlation import (
    AttachmentFilter,
    CorrelationEvidence,
    CorrelationFilter,
    CorrelationResult,
    ExternalAttachment,
)
from stormlog.issues import StormlogIssue, normalize_issue_state
from stormlog.query import _evidence, _summary
from stormlog.query._catalog import ArtifactCatalog, CatalogSource, read_object, text
from stormlog.query._grouping import Grouping
from stormlog.query._matching import bundle_matches, is_like, matching, session_matches, signs
from stormlog.query._rows import (
    EventFilter,
    EventRow,
    IssueFilter,
    OOMBundleFilter,
    OOMBundleRow,
    SessionFilter,
    SessionRow,
    SummaryRow,
)
from stormlog.query._summary import SummaryGroupBy, SummaryMetric
from stormlog.run_catalog import (
    RunAttachmentFilter,
    RunAttachmentRow,
    RunContext,
    RunFilter,
    RunRow,
    build_identity_index,
    build_run_contexts,
    diagnose_attachment_rows,
    envelope_attachment_rows,
    flat_telemetry_attachment_rows,
    oom_attachment_rows,
    run_attachment_matches,
    run_matches,
    sidecar_attachment_rows,
    sink_attachment_rows,
)
from stormlog.session import (
    SESSION_STATUS_INTERRUPTED,
    SESSION_STATUS_RUNNING,
    SessionSummary,
    session_summary_from_dict,
    session_summary_to_dict,
)
from stormlog.telemetry import (
    LoadedTelemetrySession,
    TelemetryEvent,
    load_telemetry_sessions,
    project_telemetry_event,
)
from stormlog.telemetry_rollups import SessionRollup, read_telemetry_rollups
from stormlog.telemetry_sink import read_telemetry_sink_manifest
from stormlog.timeline_markers import derive_session_timeline_markers


def open(paths: Sequence[str | Path]) -> QueryStore:
    """What lies at some paths, ready to be asked."""
    return QueryStore(ArtifactCatalog(paths))


class QueryStore:
    """Answers about a catalogue. Every answer is a list of rows in a fixed order."""

    def __init__(self, catalog: ArtifactCatalog) -> None:
        self.catalog = catalog
        self._loaded: dict[CatalogSource, list[LoadedTelemetrySession]] = {}
        self._told_conflicts: set[str] = set()

    def list_runs(self, filters: RunFilter | None = None) -> list[RunRow]:
        """The runs, newest first: those that say so themselves and those the sessions make up."""
        contexts = self._contexts()
        counts = Counter(row.run_id for row in self._attachments(contexts))
        rows = [context.to_row(counts[context.run_id]) for context in contexts.values()]
        wanted = filters or RunFilter()
        return sorted(
            (row for row in rows if run_matches(row, wanted)),
            key=lambda row: (-1 if row.started_at_ns is None else row.started_at_ns, row.run_id),
            reverse=True,
        )

    def list_run_attachments(self, filters: RunAttachmentFilter | None = None) -> list[RunAttachmentRow]:
        """What belongs to the runs, by run, session, rank and kind."""
        wanted = filters or RunAttachmentFilter()
        rows = [row for row in self._attachments(self._contexts()) if run_attachment_matches(row, wanted)]
        return sorted(
            rows,
            key=lambda row: (
                row.run_id,
                row.session_id or "",
                -1 if row.rank is None else row.rank,
                row.kind,
                row.title,
                row.source_path,
            ),
        )

    def list_sessions(self, filters: SessionFilter | None = None) -> list[SessionRow]:
        """The sessions, newest first; one that lies in several sources has a row for each."""
        wanted = filters or SessionFilter()
        bundles = self._bundle_counts()
        rows: dict[tuple[str, str, str], SessionRow] = {}
        for source in self.catalog.sources:
            for row in self._session_rows(source, bundles):
                rows.setdefault((row.session_id, row.source_path, row.source_kind), row)
        return sorted(
            (row for row in rows.values() if session_matches(row, wanted)),
            key=lambda row: (row.started_at_ns, row.session_id),
            reverse=True,
        )

    def query_events(self, filters: EventFilter | None = None) -> list[EventRow]:
        """The events in the order of time."""
        wanted = filters or EventFilter()
        return self._event_rows(lambda loaded: matching(loaded, wanted), wanted.limit)

    def list_oom_bundles(self, filters: OOMBundleFilter | None = None) -> list[OOMBundleRow]:
        """The OOM bundles, oldest first."""
        wanted = filters or OOMBundleFilter()
        statuses = self._stated_statuses()
        rows = []
        for bundle in self.catalog.oom_bundles:
            told = {field.name: getattr(bundle, field.name) for field in dataclasses.fields(OOMBundleRow)}
            told["bundle_path"] = str(bundle.bundle_path)
            told["session_status"] = bundle.session_status or statuses.get(bundle.session_id)
            rows.append(OOMBundleRow(**told))
        return sorted(
            (row for row in rows if bundle_matches(row, wanted)),
            key=lambda row: (row.created_at_utc or "", row.bundle_path),
        )

    def list_attachments(self, filters: AttachmentFilter | None = None) -> list[ExternalAttachment]:
        """What sidecar files name, in the order of time."""
        wanted = filters or AttachmentFilter()
        return sorted(
            (row for row in self.catalog.attachments if is_like(row, wanted)),
            key=lambda row: (-1 if row.start_ns is None else row.start_ns, row.title, row.sidecar_path),
        )

    def correlate(self, filters: CorrelationFilter) -> CorrelationResult:
        """What else happened around a moment or a record; ValueError where neither is named or known."""
        moment = _evidence.anchor(filters, self._anchor_row(filters))
        evidence = _evidence.judged(self._candidates(moment["at_ns"], filters.window_ns), moment, filters)
        return CorrelationResult(moment, evidence, [warning.message for warning in self.catalog.warnings])

    def list_issues(
        self, filters: IssueFilter | None = None, *, state_overrides: Mapping[str, str] | None = None
    ) -> list[StormlogIssue]:
        """What went wrong, the worst first; a state given for a fingerprint takes the place of `open`."""
        states = {name: normalize_issue_state(state) for name, state in (state_overrides or {}).items()}
        grouping = Grouping()
        for bundle in self.list_oom_bundles():
            grouping.add_bundle(bundle)
        for row in self._event_rows(signs):
            grouping.add_event(row)
        for source, loaded in self._each_loaded():
            grouping.add_hidden(loaded, _place(loaded, source), source.source_kind)
        return grouping.issues(filters or IssueFilter(), states)

    def summarize(self, metric: SummaryMetric, *, group_by: SummaryGroupBy | None = None) -> list[SummaryRow]:
        """One number a group; ValueError for a metric that is none. Unknown counters have no say."""
        if metric == "session_count_by_status":
            counts = Counter(row.status for row in self.list_sessions())
            return [SummaryRow(metric, "status", counts[status], status=status) for status in sorted(counts)]
        if metric == "interrupted_sessions_with_oom_bundles":
            asked = SessionFilter(status=SESSION_STATUS_INTERRUPTED, has_oom_bundle=True)
            return [
                SummaryRow(metric, "session", row.oom_bundle_count, row.session_id, status=row.status)
                for row in self.list_sessions(asked)
            ]
        group = group_by or "session"
        rollups = self._rollups()
        known = None if rollups is None else _summary.from_rollups(rollups, metric, group)
        if known is None:
            known = _summary.from_buffers(self._untouched(), metric, group)
        if known is None:
            rows = self._event_rows(signs) if metric in _summary.COUNTED else self.query_events()
            known = _summary.from_events(rows, metric, group)
        return known

    def _event_rows(
        self, pick: Callable[[LoadedTelemetrySession], Iterable[TelemetryEvent]], limit: int | None = None
    ) -> list[EventRow]:
        """The events picked from each session, in the order of time; not more than the limit."""
        # A negative one is a slice's: it leaves out the last.
        most = None if limit is None or limit < 0 else limit
        rows: list[EventRow] = []
        is_sorted = True
        for source, loaded in self._each_loaded():
            place, status = _place(loaded, source), loaded.summary.status
            is_in_order = in_order(loaded.events)
            is_sorted = is_in_order and not rows
            # Of a session in the order of time only so many can be among the first.
            picked = islice(pick(loaded), most if is_in_order else None)
            with _uncollected():
                rows += [EventRow(event, place, source.source_kind, status) for event in picked]
        if not is_sorted:
            rows.sort(key=lambda row: (row.event.timestamp_ns, row.event.session_id))
        return rows[:limit]

    def _untouched(self) -> list[tuple[str, _native.telemetry.EventBuffer]] | None:
        """The state of each session and its events as they were loaded; None where one has been touched."""
        found = []
        for _, loaded in self._each_loaded():
            buffer = untouched(loaded.events)
            if buffer is None:
                return None
            found.append((loaded.summary.status, buffer))
        return found

    def _session_rows(self, source: CatalogSource, bundles: Mapping[str, int]) -> Iterator[SessionRow]:
        manifest = read_telemetry_sink_manifest(source.path) if source.source_kind == "sink" else None
        if manifest is not None and manifest.sessions:
            for summary in manifest.sessions:
                segments = [one for one in manifest.segments if one.session_id == summary.session_id]
                count = sum(segment.event_count for segment in segments)
                yield _session_row(self._settled(summary, source), source, len(segments), 0, count, bundles)
        elif source.source_kind == "diagnose_bundle":
            stated = _diagnosed_session(source)
            # A bundle with its own sink is listed once, through the sink.
            if stated is not None and stated.session_id not in self._sink_sessions_inside(source.path):
                yield _session_row(stated, source, 1, 0, None, bundles)
        else:
            for loaded in self._load(source):
                count, warnings = len(loaded.sources_loaded) or 1, len(loaded.warnings)
                yield _session_row(loaded.summary, source, count, warnings, len(loaded.events), bundles)

    def _settled(self, summary: SessionSummary, source: CatalogSource) -> SessionSummary:
        """A summary by what its events add: of a session whose process is gone they know the end."""
        if not _is_abandoned(summary, source):
            return summary
        loaded = [one.summary for one in self._load(source) if one.summary.session_id == summary.session_id]
        return loaded[0] if loaded else dataclasses.replace(summary, status=SESSION_STATUS_INTERRUPTED)

    def _each_loaded(self) -> Iterator[tuple[CatalogSource, LoadedTelemetrySession]]:
        for source in self.catalog.sources:
            for loaded in self._load(source):
                yield source, loaded

    def _load(self, source: CatalogSource) -> list[LoadedTelemetrySession]:
        # What `diagnose` sampled is in its own file, not telemetry of a program.
        if source.source_kind == "diagnose_bundle":
            return []
        if source not in self._loaded:
            try:
                self._loaded[source] = [_settled(one, source) for one in load_telemetry_sessions(source.path)]
            except (OSError, ValueError) as error:
                self.catalog.warn(source.path, f"load failed: {error}")
                self._loaded[source] = []
        return self._loaded[source]

    def _bundle_counts(self) -> Mapping[str, int]:
        ids = (bundle.session_id for bundle in self.catalog.oom_bundles)
        return Counter(session_id for session_id in ids if session_id is not None)

    def _stated_statuses(self) -> Mapping[str | None, str]:
        """How sessions ended, by the manifests that say so."""
        statuses: dict[str | None, str] = {}
        for source in self.catalog.sources:
            for summary in self._stated(source):
                statuses.setdefault(summary.session_id, summary.status)
        return statuses

    def _stated(self, source: CatalogSource) -> list[SessionSummary]:
        if source.source_kind == "sink":
            manifest = read_telemetry_sink_manifest(source.path)
            sessions = [] if manifest is None else manifest.sessions
            return [self._settled(summary, source) for summary in sessions]
        stated = _diagnosed_session(source) if source.source_kind == "diagnose_bundle" else None
        return [] if stated is None else [stated]

    def _sink_sessions_inside(self, directory: Path) -> set[str]:
        inside = (one for one in self.catalog.sources if directory in one.path.parents)
        return {
            summary.session_id for one in inside if one.source_kind == "sink" for summary in self._stated(one)
        }

    def _rollups(self) -> list[SessionRollup] | None:
        """The rollups of all sources; None unless each is a sink that has fresh ones."""
        found: list[SessionRollup] = []
        for source in self.catalog.sources:
            rollups = read_telemetry_rollups(source.path) if source.source_kind == "sink" else None
            if rollups is None:
                return None
            found += rollups.sessions
        return found if self.catalog.sources else None

    def _contexts(self) -> dict[str, RunContext]:
        return build_run_contexts(self.list_sessions(), self.catalog.run_envelopes)

    def _attachments(self, contexts: Mapping[str, RunContext]) -> list[RunAttachmentRow]:
        index = build_identity_index(contexts)
        for message in (conflict.message for conflict in index.conflicts):
            if message not in self._told_conflicts:
                self._told_conflicts.add(message)
                self.catalog.warn("<run-catalog>", message)
        sessions = {one.session_id: one for context in contexts.values() for one in context.sessions}
        rows = envelope_attachment_rows(self.catalog.run_envelopes, contexts)
        rows += sidecar_attachment_rows(self.catalog.attachments, index)
        for source in self.catalog.sources:
            if source.source_kind == "sink":
                manifest = read_telemetry_sink_manifest(source.path)
                rows += [] if manifest is None else sink_attachment_rows(source, manifest, index)
            elif source.source_kind == "diagnose_bundle":
                rows += diagnose_attachment_rows(source, _diagnosed_session(source), index)
            else:
                rows += flat_telemetry_attachment_rows(source, contexts)
        return rows + oom_attachment_rows(self.catalog.oom_bundles, index, sessions)

    def _anchor_row(self, filters: CorrelationFilter) -> EventRow | None:
        if filters.record_id is None:
            if filters.at_ns is None:
                raise ValueError("correlation requires --at-ns or --record-id")
            return None
        for row in self.query_events():
            if project_telemetry_event(row.event).record_id == filters.record_id:
                if filters.at_ns not in (None, row.event.timestamp_ns):
                    raise ValueError("record_id timestamp does not match at_ns")
                return row
        raise ValueError(f"record_id not found: {filters.record_id}")

    def _candidates(self, at_ns: int, window_ns: int) -> Iterator[CorrelationEvidence]:
        # What is further away belongs to no moment.
        rows = self.query_events(EventFilter(time_start_ns=at_ns - window_ns, time_end_ns=at_ns + window_ns))
        yield from map(_evidence.of_event, rows)
        yield from (alert for alert in map(_evidence.of_alert, rows) if alert is not None)
        for source, loaded in self._each_loaded():
            for marker in derive_session_timeline_markers(loaded):
                place = _place(loaded, source)
                yield _evidence.of_marker(marker, loaded.summary.job_id, place, source.source_kind)
        sessions = {row.session_id: row for row in self.list_sessions()}
        for bundle in self.list_oom_bundles():
            yield _evidence.of_bundle(bundle, sessions.get(bundle.session_id or ""))
        for source in self.catalog.sources:
            if source.source_kind == "diagnose_bundle":
                for summary in self._stated(source):
                    yield _evidence.of_diagnosis(source, summary)
        for source in self.catalog.sources:
            rollups = read_telemetry_rollups(source.path) if source.source_kind == "sink" else None
            yield from () if rollups is None else _evidence.of_rollups(rollups, str(source.path))
        yield from map(_evidence.of_attachment, self.catalog.attachments)


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


def _place(loaded: LoadedTelemetrySession, source: CatalogSource) -> str:
    """The file that stands for a session's events: of a sink its first segment."""
    return loaded.sources_loaded[0] if loaded.sources_loaded else str(source.path)


def _is_abandoned(summary: SessionSummary, source: CatalogSource) -> bool:
    """Whether a session claims to run though its process is known to have ended."""
    if summary.status != SESSION_STATUS_RUNNING:
        return False
    return _native.catalog.is_session_dead(source.path, summary.pid, summary.host, summary.started_at_ns)


def _settled(loaded: LoadedTelemetrySession, source: CatalogSource) -> LoadedTelemetrySession:
    if not _is_abandoned(loaded.summary, source):
        return loaded
    last_ns = max((event.timestamp_ns for event in passing(loaded.events)), default=None)
    summary = dataclasses.replace(loaded.summary, status=SESSION_STATUS_INTERRUPTED, ended_at_ns=last_ns)
    return dataclasses.replace(loaded, summary=summary)


def _diagnosed_session(source: CatalogSource) -> SessionSummary | None:
    """The session a bundle of `diagnose` is of, by its manifest."""
    stated = None if source.manifest_path is None else read_object(source.manifest_path)
    if stated is None:
        return None
    try:
        return session_summary_from_dict(stated["session"])
    except (KeyError, TypeError, ValueError):
        session_id = text(stated.get("session_id"))
    if session_id is None:
        return None
    known = {"session_id": session_id, "status": stated.get("session_status", "incomplete")}
    nothing = {"started_at_ns": 0, "ended_at_ns": None, "host": "unknown", "pid": -1, "job_id": None}
    place = {"rank": 0, "local_rank": 0, "world_size": 1, "source": "stormlog.diagnose"}
    try:
        return session_summary_from_dict({**known, **nothing, **place})
    except ValueError:
        return None


def _session_row(
    summary: SessionSummary,
    source: CatalogSource,
    source_count: int,
    warning_count: int,
    event_count: int | None,
    bundles: Mapping[str, int],
) -> SessionRow:
    return SessionRow(
        **session_summary_to_dict(summary),
        source_path=str(source.path),
        source_kind=source.source_kind,
        source_count=source_count,
        warning_count=warning_count,
        event_count=event_count,
        oom_bundle_count=bundles.get(summary.session_id, 0),
    )
