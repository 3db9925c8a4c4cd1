"""The append-only telemetry sink: records to JSONL segments, with rollover, retention and a manifest.

The sink itself is native. A directory written here is read and gone on with by 0.4.3, and the other way
round. Nothing here may write to a sink's files past the native sink.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog.session import SESSION_STATUS_COMPLETED, SessionSummary, session_summary_of

__all__ = [
    "MANIFEST_FILENAME",
    "SEGMENT_PREFIX",
    "SEGMENT_SUFFIX",
    "SINK_SCHEMA_VERSION",
    "AppendOnlyTelemetrySink",
    "TelemetrySinkConfig",
    "TelemetrySinkManifest",
    "TelemetrySinkSegment",
    "read_telemetry_sink_manifest",
    "resolve_telemetry_sink_manifest_path",
    "resolve_telemetry_sink_segment_paths",
]

MANIFEST_FILENAME = "manifest.json"
SEGMENT_PREFIX = "segment-"
SEGMENT_SUFFIX = ".jsonl"
SINK_SCHEMA_VERSION = 2

_LOGGER = logging.getLogger(__name__)


@dataclass
class TelemetrySinkConfig:
    """When a sink flushes, rolls over, forgets and gives up.

    With `max_buffer_bytes` the sink is bounded: what does not fit into that much memory is dropped and
    counted, and a failed flush is counted and tried again later instead of raised.
    """

    root_dir: Path
    flush_every_events: int = 50
    flush_every_seconds: float = 2.0
    rollover_max_bytes: int = 64 * 1024 * 1024
    rollover_max_events: int = 10000
    retention_max_files: int = 8
    retention_max_total_bytes: int = 512 * 1024 * 1024
    write_rollups: bool = True
    rollup_window_seconds: int = 60
    max_buffer_bytes: int | None = None
    failure_backoff_seconds: float = 1.0
    failure_backoff_max_seconds: float = 60.0

    def __post_init__(self) -> None:
        self.root_dir = Path(self.root_dir)
        _native.sink.check_sink_settings(self)


@dataclass
class TelemetrySinkSegment:
    """One segment as the manifest lists it."""

    filename: str
    event_count: int
    size_bytes: int
    closed: bool
    session_id: str | None = None


@dataclass
class TelemetrySinkManifest:
    """The sessions and segments of a sink."""

    schema_version: int
    format: str
    sessions: list[SessionSummary] = field(default_factory=list)
    segments: list[TelemetrySinkSegment] = field(default_factory=list)


class AppendOnlyTelemetrySink:
    """Writes records to a directory; safe to share between threads, and usable after a fork."""

    def __init__(self, config: TelemetrySinkConfig) -> None:
        # `socket` is a large import; only a sink needs the host's name here.
        import socket

        self.config = config
        self.root_dir = config.root_dir
        self._sink = _native.sink.Sink(config, socket.gethostname())

    def start_session(self, summary: SessionSummary | None = None) -> SessionSummary:
        """Makes a session the active one; if one is active, that one stays and is returned."""
        try:
            return session_summary_of(self._sink.start_session(summary))
        finally:
            self._log_warnings()

    def current_session(self) -> SessionSummary | None:
        """The active session, if any."""
        current = self._sink.current_session()
        return None if current is None else session_summary_of(current)

    def append(self, record: Mapping[str, Any]) -> None:
        """Appends one record; the first one opens a session if none is active."""
        line = json.dumps(dict(record), sort_keys=True)
        try:
            warned = self._sink.append(line, record.get("session_id"))
        except OSError:
            self._log_warnings()
            raise
        if warned:
            self._log_warnings()

    def flush(self, force: bool = False) -> None:
        """Writes what waits; without `force` only when enough does, or long enough."""
        try:
            self._sink.flush(force)
        finally:
            self._log_warnings()

    def close(self, session_status: str = SESSION_STATUS_COMPLETED) -> None:
        """Flushes, ends the session and writes the rollups. The sink may be used again afterwards."""
        try:
            self._sink.close(session_status)
        finally:
            self._log_warnings()

    def get_diagnostics(self) -> dict[str, int]:
        """Counters of rollover and retention."""
        return self._sink.diagnostics()

    def failure_diagnostics(self) -> dict[str, int | str | None]:
        """Counters of the buffer and of what failed."""
        return self._sink.failure_diagnostics()

    def _log_warnings(self) -> None:
        # The native sink prints nothing, and its thread never enters the interpreter: it is asked.
        for text in self._sink.take_warnings():
            _LOGGER.warning("%s", text)


def read_telemetry_sink_manifest(path: str | Path) -> TelemetrySinkManifest | None:
    """The manifest of the sink a directory, manifest or segment belongs to; None if it cannot be read."""
    found = _native.sink.read_sink_manifest(Path(path))
    if found is None:
        return None
    segments = [
        TelemetrySinkSegment(
            filename=segment.filename,
            event_count=segment.event_count,
            size_bytes=segment.size_bytes,
            closed=segment.closed,
            session_id=segment.session_id,
        )
        for segment in found.segments
    ]
    return TelemetrySinkManifest(
        schema_version=found.schema_version,
        format=found.format,
        sessions=[session_summary_of(session) for session in found.sessions],
        segments=segments,
    )


def resolve_telemetry_sink_manifest_path(path: str | Path) -> Path | None:
    """The path of the manifest a directory, manifest or segment belongs to, if there is one."""
    return _native.sink.sink_manifest_path(Path(path))


def resolve_telemetry_sink_segment_paths(path: str | Path) -> list[Path]:
    """The segments of a sink in order: those listed and those found. A lone JSONL file is its own."""
    return _native.sink.sink_segment_paths(Path(path))
