"""Rollups: aggregates of a sink's records per session, rank and window, in `rollups.json`.

Derived and replaceable: rollups that are broken, or that do not cover the segments there are, count as
missing. They are computed and checked natively; here are their shapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._telemetry.event_list import passing
from stormlog.session import SessionSummary, now_ns
from stormlog.telemetry import LoadedTelemetrySession
from stormlog.telemetry_sink import MANIFEST_FILENAME, TelemetrySinkManifest

__all__ = [
    "DEFAULT_ROLLUP_WINDOW_NS",
    "DEFAULT_ROLLUP_WINDOW_SECONDS",
    "ROLLUP_FILENAME",
    "TELEMETRY_ROLLUP_SCHEMA_VERSION",
    "AlertSummary",
    "CollectorHealthSummary",
    "CounterSummary",
    "OomSummary",
    "PeakValue",
    "RankRollup",
    "RollupCoverage",
    "SessionRollup",
    "TelemetryRollupFile",
    "WindowRollup",
    "build_telemetry_rollups",
    "read_telemetry_rollups",
    "resolve_telemetry_rollup_path",
    "rollup_coverage_from_manifest",
    "telemetry_rollup_file_from_dict",
    "telemetry_rollup_file_to_dict",
    "write_telemetry_rollups",
]

TELEMETRY_ROLLUP_SCHEMA_VERSION = 1
ROLLUP_FILENAME = "rollups.json"
DEFAULT_ROLLUP_WINDOW_SECONDS = 60
DEFAULT_ROLLUP_WINDOW_NS = DEFAULT_ROLLUP_WINDOW_SECONDS * 1_000_000_000

_FORMAT = "stormlog.telemetry_rollups"


@dataclass(frozen=True)
class PeakValue:
    """The greatest value of a counter, and where it was seen."""

    value: int | None = None
    timestamp_ns: int | None = None
    rank: int | None = None
    device_id: int | None = None


@dataclass(frozen=True)
class CounterSummary:
    """The peaks of the three counters that matter most."""

    allocator_allocated_bytes: PeakValue = field(default_factory=PeakValue)
    allocator_reserved_bytes: PeakValue = field(default_factory=PeakValue)
    device_used_bytes: PeakValue = field(default_factory=PeakValue)


@dataclass(frozen=True)
class AlertSummary:
    """Alerts by severity and by type."""

    total_count: int = 0
    severity_counts: dict[str, int] = field(default_factory=dict)
    event_type_counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectorHealthSummary:
    """How often the collector was degraded, and for how long."""

    transition_count: int = 0
    degraded_count: int = 0
    recovered_count: int = 0
    degraded_time_ns: int = 0
    last_status: str | None = None


@dataclass(frozen=True)
class OomSummary:
    """Out-of-memory events and their bundles."""

    marker_count: int = 0
    event_count: int = 0
    bundle_path_count: int = 0


@dataclass(frozen=True)
class RollupCoverage:
    """Which records a rollup was made from."""

    retained_segment_filenames: list[str] = field(default_factory=list)
    retained_segment_count: int = 0
    retained_event_count: int = 0
    retained_bytes: int = 0
    pruned_segment_count: int | None = None
    pruned_bytes: int | None = None


@dataclass(frozen=True)
class RankRollup:
    """One rank of a session. The hidden gap is what the device uses beyond what the allocator reserved."""

    rank: int
    local_rank: int
    world_size: int
    event_count: int
    sample_count: int
    first_timestamp_ns: int | None
    last_timestamp_ns: int | None
    counters: CounterSummary
    hidden_gap_first_bytes: int | None = None
    hidden_gap_latest_bytes: int | None = None
    hidden_gap_peak_bytes: int | None = None
    hidden_gap_delta_bytes: int | None = None
    hidden_gap_drift_bytes_per_second: float | None = None


@dataclass(frozen=True)
class WindowRollup:
    """A stretch of a session of fixed length."""

    index: int
    start_ns: int
    end_ns: int
    event_count: int
    sample_count: int
    rank_count: int
    counters: CounterSummary
    alert_count: int = 0
    collector_transition_count: int = 0
    oom_count: int = 0


@dataclass(frozen=True)
class SessionRollup:
    """One session."""

    session: SessionSummary
    event_count: int
    sample_count: int
    first_timestamp_ns: int | None
    last_timestamp_ns: int | None
    source_count: int
    sources_loaded: list[str]
    warnings: list[str]
    counters: CounterSummary
    alerts: AlertSummary
    collector_health: CollectorHealthSummary
    oom: OomSummary
    ranks: list[RankRollup] = field(default_factory=list)
    windows: list[WindowRollup] = field(default_factory=list)


@dataclass(frozen=True)
class TelemetryRollupFile:
    """The whole file."""

    schema_version: int
    format: str
    generated_at_ns: int
    source_manifest: str | None
    source_manifest_schema_version: int | None
    window_duration_ns: int
    coverage: RollupCoverage
    sessions: list[SessionRollup] = field(default_factory=list)


def build_telemetry_rollups(
    sessions: Sequence[LoadedTelemetrySession],
    manifest: TelemetrySinkManifest | None,
    *,
    window_duration_ns: int = DEFAULT_ROLLUP_WINDOW_NS,
    coverage: RollupCoverage | None = None,
) -> TelemetryRollupFile:
    """The rollups of loaded sessions; without `coverage`, what the manifest lists is covered."""
    if window_duration_ns <= 0:
        raise ValueError("window_duration_ns must be >= 1")
    ordered = sorted(sessions, key=lambda one: (one.summary.started_at_ns, one.summary.session_id))
    return TelemetryRollupFile(
        schema_version=TELEMETRY_ROLLUP_SCHEMA_VERSION,
        format=_FORMAT,
        generated_at_ns=now_ns(),
        source_manifest=None if manifest is None else MANIFEST_FILENAME,
        source_manifest_schema_version=None if manifest is None else manifest.schema_version,
        window_duration_ns=window_duration_ns,
        coverage=coverage or rollup_coverage_from_manifest(manifest),
        sessions=[_roll_up(loaded, window_duration_ns) for loaded in ordered],
    )


def rollup_coverage_from_manifest(
    manifest: TelemetrySinkManifest | None,
    *,
    pruned_segment_count: int | None = None,
    pruned_bytes: int | None = None,
) -> RollupCoverage:
    """What rollups of the segments in a manifest cover."""
    segments = [] if manifest is None else manifest.segments
    return RollupCoverage(
        retained_segment_filenames=[segment.filename for segment in segments],
        retained_segment_count=len(segments),
        retained_event_count=sum(segment.event_count for segment in segments),
        retained_bytes=sum(segment.size_bytes for segment in segments),
        pruned_segment_count=pruned_segment_count,
        pruned_bytes=pruned_bytes,
    )


def resolve_telemetry_rollup_path(path: str | Path) -> Path:
    """Where the rollups are of the sink that a directory, manifest, segment or rollup file belongs to."""
    return _native.sink.sink_rollup_path(Path(path))


def write_telemetry_rollups(root_dir: str | Path, rollups: TelemetryRollupFile) -> Path:
    """Puts the rollups beside the manifest, whole and synced; returns where."""
    text = json.dumps(telemetry_rollup_file_to_dict(rollups), indent=2, sort_keys=True)
    return _native.sink.write_rollups(Path(root_dir), text + "\n")


def read_telemetry_rollups(path: str | Path) -> TelemetryRollupFile | None:
    """The rollups of a sink; None when there are none, they are broken, or they are stale."""
    found = _native.sink.read_rollups(Path(path))
    return None if found is None else _file(found)


def telemetry_rollup_file_to_dict(rollups: TelemetryRollupFile) -> dict[str, Any]:
    """The object form, ready for JSON."""
    return asdict(rollups)


def telemetry_rollup_file_from_dict(payload: Mapping[str, Any]) -> TelemetryRollupFile:
    """Reads the object form; ValueError names what is wrong with it."""
    return _file(_native.sink.check_rollups(payload))


def _roll_up(loaded: LoadedTelemetrySession, window_duration_ns: int) -> SessionRollup:
    found = _native.sink.rollup_session(
        loaded.summary.started_at_ns,
        loaded.summary.ended_at_ns,
        passing(loaded.events),
        loaded.sources_loaded,
        loaded.warnings,
        window_duration_ns,
    )
    return _session({**found, "session": asdict(loaded.summary)})


# From here on shapes only: what arrives was made or checked natively.


def _file(value: dict[str, Any]) -> TelemetryRollupFile:
    coverage = RollupCoverage(**value["coverage"])
    sessions = [_session(session) for session in value["sessions"]]
    return TelemetryRollupFile(**{**value, "coverage": coverage, "sessions": sessions})


def _session(value: dict[str, Any]) -> SessionRollup:
    parts = {
        "session": SessionSummary(**value["session"]),
        "counters": _counters(value["counters"]),
        "alerts": AlertSummary(**value["alerts"]),
        "collector_health": CollectorHealthSummary(**value["collector_health"]),
        "oom": OomSummary(**value["oom"]),
        "ranks": [RankRollup(**{**rank, "counters": _counters(rank["counters"])}) for rank in value["ranks"]],
        "windows": [
            WindowRollup(**{**window, "counters": _counters(window["counters"])})
            for window in value["windows"]
        ],
    }
    return SessionRollup(**{**value, **parts})


def _counters(value: dict[str, dict[str, int | None]]) -> CounterSummary:
    return CounterSummary(**{name: PeakValue(**peak) for name, peak in value.items()})
