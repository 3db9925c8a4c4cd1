"""A tracked session or a diagnose bundle on its way to a tracking service.

The same road for every service, which brings a `Service`; must never import one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stormlog._export.rows import (
    Table,
    alerts,
    dashboard,
    existing,
    metrics,
    read_object,
    series_point,
    session_fields,
    session_of,
    slug,
    tensors,
    timeline,
    timeline_table,
)
from stormlog.cuda_native_debug import (
    ALLOCATION_ATTRIBUTION_FILENAME,
    DEBUG_METADATA_FILENAME,
    TENSOR_ATTRIBUTION_FILENAME,
    TRACE_HTML_ANNOTATED_FILENAME,
    TRACE_HTML_FILENAME,
)
from stormlog.session import SessionSummary

MOST_TENSORS = 200

_TOLD = ("backend", "collector_health_status", "collector_last_error", "session_status")
_DIAGNOSED = (
    "allocated_bytes",
    "reserved_bytes",
    "peak_bytes",
    "total_bytes",
    "utilization_ratio",
    "fragmentation_ratio",
    "num_ooms",
)


class Service(Protocol):
    """One run of a tracking service."""

    def summary(self, fields: Mapping[str, Any]) -> None:
        """Numbers and words about the whole run."""

    def series(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Numbers over time: `step` and metrics."""

    def table(self, name: str, table: Table) -> None:
        """A table."""

    def page(self, name: str, text: str) -> None:
        """A page of HTML."""

    def files(self, kind: str, session: str, path: Path) -> None:
        """A file or a directory, kept with the run."""

    def end(self) -> None:
        """Ends the run, if it is ours."""


class Config(Protocol):
    """What every service's configuration has."""

    @property
    def log_tables(self) -> bool: ...
    @property
    def log_artifacts(self) -> bool: ...
    @property
    def log_attribution(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class Tracked:
    """A tracked session."""

    session: SessionSummary | None
    stats: Mapping[str, Any]
    events: Sequence[Any]
    output: Path | None
    sink: Path | None
    dump: Path | None
    attribution: Path | None

    @classmethod
    def of(
        cls,
        session: SessionSummary | None,
        stats: Mapping[str, Any],
        events: Sequence[Any],
        output: str | Path | None,
        sink: str | Path | None,
        dump: str | Path | None,
        attribution: str | Path | None,
    ) -> Tracked:
        """A session with what of its files is there."""
        there = existing(dump, directory=True)
        return cls(
            session=session,
            stats=stats,
            events=events,
            output=existing(output, directory=False),
            sink=existing(sink, directory=True),
            dump=there,
            attribution=existing(attribution, directory=True) or there,
        )


def send_tracked(start: Callable[[], Service], config: Config, done: Tracked) -> None:
    """Sends a tracked session."""
    points = timeline(done.events)
    service = start()
    session = slug(done.session)
    try:
        fields = {
            **metrics(done.stats),
            "stormlog_chart_point_count": len(points),
            **session_fields(done.session),
            **{f"stormlog_{key}": done.stats[key] for key in _TOLD if done.stats.get(key) is not None},
        }
        if done.output is not None:
            fields["stormlog_output_file"] = done.output.name
        service.summary(fields)
        service.series([series_point(point) for point in points])
        if config.log_tables:
            raised = alerts(done.events)
            if raised.rows:
                service.table("stormlog_alerts", raised)
            if points:
                service.table("stormlog_memory_timeline", timeline_table(points))
                service.page("stormlog_tracking_dashboard", dashboard(points))
        if config.log_artifacts:
            kinds = {
                "stormlog-track-output": done.output,
                "stormlog-telemetry-sink": done.sink,
                "stormlog-oom-dump": done.dump,
                "stormlog-attribution-bundle": done.attribution if done.attribution != done.dump else None,
            }
            for kind, path in kinds.items():
                if path is not None:
                    service.files(kind, session, path)
        if config.log_attribution and done.attribution is not None:
            _send_attribution(service, config, session, done.attribution)
    finally:
        service.end()


def send_diagnosed(
    start: Callable[[SessionSummary | None], Service], config: Config, directory: Path
) -> None:
    """Sends a diagnose bundle."""
    if not directory.is_dir():
        raise FileNotFoundError(f"Diagnose artifact directory not found: {directory}")
    manifest = read_object(directory / "manifest.json")
    summary = read_object(directory / "diagnostic_summary.json")
    session = session_of(manifest)
    service = start(session)
    try:
        fields: dict[str, Any] = {
            f"stormlog_{key}": summary[key] for key in _DIAGNOSED if isinstance(summary.get(key), int | float)
        }
        risks = summary.get("risk_flags")
        for name, risk in risks.items() if isinstance(risks, Mapping) else ():
            fields[f"stormlog_risk_{name}"] = bool(risk)
        for key in ("risk_detected", "exit_code", "native_history_enabled", "session_status"):
            if manifest.get(key) is not None:
                fields[f"stormlog_{key}"] = manifest[key]
        service.summary({**fields, **session_fields(session), "stormlog_artifact_dir": directory.name})
        suggestions = summary.get("suggestions")
        if config.log_tables and isinstance(suggestions, list) and suggestions:
            rows: list[list[Any]] = [[number, str(text)] for number, text in enumerate(suggestions, 1)]
            service.table("stormlog_diagnostic_suggestions", Table(("index", "suggestion"), rows))
        if config.log_artifacts:
            service.files("stormlog-diagnose", slug(session), directory)
        if config.log_attribution:
            _send_attribution(service, config, slug(session), directory)
    finally:
        service.end()


def _send_attribution(service: Service, config: Config, session: str, root: Path) -> None:
    """What held GPU memory, as far as a bundle has it."""
    fields: dict[str, Any] = {}
    names = (
        TRACE_HTML_ANNOTATED_FILENAME,
        TRACE_HTML_FILENAME,
        TENSOR_ATTRIBUTION_FILENAME,
        ALLOCATION_ATTRIBUTION_FILENAME,
        DEBUG_METADATA_FILENAME,
    )
    if config.log_artifacts:
        for name in names:
            if (root / name).is_file():
                service.files("stormlog-attribution", session, root / name)
    page = root / TRACE_HTML_ANNOTATED_FILENAME
    if page.is_file():
        service.page("stormlog_attribution_html", page.read_text(encoding="utf-8"))
        fields["stormlog_attribution_html_file"] = page.name
    held = tensors(read_object(root / TENSOR_ATTRIBUTION_FILENAME))
    if held.rows:
        fields["stormlog_tensor_attribution_rows"] = len(held.rows)
        most = dataclasses.replace(held, rows=held.rows[:MOST_TENSORS])
        service.table("stormlog_tensor_attribution", most)
    recorded = read_object(root / DEBUG_METADATA_FILENAME).get("history_recorded")
    if isinstance(recorded, bool):
        fields["stormlog_attribution_history_recorded"] = recorded
    if fields:
        service.summary(fields)
