# What is found at a path, and the questions about it: the submodule `stormlog._native.catalog`.
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias, final

from stormlog._native.telemetry import EventBuffer, LoadedSession
from stormlog.correlation import ExternalAttachment as _ExternalAttachment
from stormlog.run_catalog import _models
from stormlog.run_catalog._models import CatalogRunEnvelope as _CatalogRunEnvelope
from stormlog.run_catalog._models import RunContext as _RunContext
from stormlog.run_catalog._models import SessionRowLike as _SessionRowLike
from stormlog.session import SessionSummary as _SessionSummary
from stormlog.telemetry_sink import TelemetrySinkSegment as _Segment

__all__ = [
    "CAPTURE_FILE",
    "DIAGNOSE_ENVIRONMENT_FILE",
    "DIAGNOSE_FRAGMENTATION",
    "DIAGNOSE_HIGH_UTILIZATION",
    "DIAGNOSE_MANIFEST_FILE",
    "DIAGNOSE_MANIFEST_VERSION",
    "DIAGNOSE_REPORT_FILE",
    "DIAGNOSE_SUMMARY_FILE",
    "DIAGNOSE_TIMELINE_FILE",
    "DUMPS_DIRECTORY",
    "JAX_END_PROFILE",
    "JAX_FILE",
    "JAX_PEAK_PROFILE",
    "JAX_PROFILE",
    "LANDMARK_TYPES",
    "REPORT_FORMAT",
    "REPORT_SCHEMA_VERSION",
    "REPORT_SEVERITIES",
    "RUNS_DIRECTORY",
    "RUNS_VARIABLE",
    "RUN_ENVELOPE_FILE",
    "RUN_ENVELOPE_FORMAT",
    "RUN_ENVELOPE_VERSION",
    "RUN_VARIABLE",
    "VERDICT_STATUSES",
    "Catalog",
    "DiagnoseSummary",
    "EventAnswer",
    "Landmark",
    "Origin",
    "Process",
    "ProcessEnd",
    "ProcessSession",
    "RankArtifacts",
    "Run",
    "RunConflict",
    "RunContext",
    "RunIdentities",
    "bundle_attachment",
    "check_report",
    "diagnose_attachments",
    "diagnose_directory",
    "diagnose_obstacle",
    "diagnose_report",
    "envelope_attachment",
    "file_attachments",
    "find_processes",
    "find_runs",
    "is_attachment_wanted",
    "is_run_envelope",
    "is_run_wanted",
    "landmark",
    "load_rank_artifacts",
    "rollup_attachments",
    "run_contexts",
    "run_envelope",
    "run_identities",
    "run_interval_ms",
    "run_of_identity",
    "segment_attachments",
    "session_directory",
    "sidecar_attachment",
    "sink_attachments",
    "unused_directory",
]

@final
class Origin:
    @property
    def source_path(self) -> str: ...
    @property
    def source_kind(self) -> str: ...
    @property
    def session_status(self) -> str: ...

@final
class EventAnswer:
    @property
    def events(self) -> EventBuffer: ...
    @property
    def origin_of(self) -> list[int]: ...
    @property
    def origins(self) -> list[Origin]: ...

# A row of an answer: the names and values of a dataclass of stormlog.query.
_Row: TypeAlias = dict[str, Any]

@final
class Catalog:
    def __new__(cls, paths: Sequence[Path]) -> Catalog: ...
    def sources(self) -> list[_Row]: ...
    def oom_bundles(self) -> list[_Row]: ...
    def sidecar_attachments(self) -> list[_Row]: ...
    def run_envelopes(self) -> list[_Row]: ...
    def warnings(self) -> list[_Row]: ...
    def runs(
        self,
        *,
        run_id: str | None,
        session_id: str | None,
        job_id: str | None,
        rank: int | None,
        source_namespace: str | None,
        source_ref: str | None,
    ) -> list[_Row]: ...
    def run_attachments(
        self,
        *,
        run_id: str | None,
        session_id: str | None,
        job_id: str | None,
        rank: int | None,
        kind: str | None,
        source_namespace: str | None,
        source_ref: str | None,
    ) -> list[_Row]: ...
    def attachments(
        self, *, session_id: str | None, job_id: str | None, rank: int | None, kind: str | None
    ) -> list[_Row]: ...
    def sessions(
        self,
        *,
        session_id: str | None,
        status: str | None,
        job_id: str | None,
        rank: int | None,
        world_size: int | None,
        has_oom_bundle: bool | None,
        source_kind: str | None,
    ) -> list[_Row]: ...
    def events(
        self,
        *,
        session_id: str | None,
        event_type: str | None,
        rank: int | None,
        collector: str | None,
        status: str | None,
        time_start_ns: int | None,
        time_end_ns: int | None,
        has_alert: bool | None,
        collector_health_status: str | None,
        backend: str | None,
        limit: int | None,
    ) -> EventAnswer: ...
    def bundles(
        self,
        *,
        session_id: str | None,
        backend: str | None,
        reason: str | None,
        created_after: str | None,
        created_before: str | None,
    ) -> list[_Row]: ...
    def issues(
        self,
        states: Sequence[tuple[str, str]],
        *,
        fingerprint_id: str | None,
        kind: str | None,
        state: str | None,
        severity: str | None,
        session_id: str | None,
    ) -> list[_Row]: ...
    def summarize(self, metric: str, group_by: str | None) -> list[_Row]: ...
    def correlate(
        self,
        *,
        session_id: str | None,
        job_id: str | None,
        rank: int | None,
        scope: str,
        at_ns: int | None,
        record_id: str | None,
        window_ns: int,
        kinds: Sequence[str],
        limit: int | None,
    ) -> tuple[_Row, list[_Row]]: ...

@final
class Run:
    @property
    def path(self) -> Path: ...
    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def command(self) -> list[str]: ...
    @property
    def host(self) -> str | None: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def supervisor_pid(self) -> int | None: ...
    @property
    def started_at_ns(self) -> int | None: ...
    @property
    def ended_at_ns(self) -> int | None: ...
    @property
    def verdict(self) -> str | None: ...
    @property
    def processes(self) -> list[Process]: ...
    @property
    def problems(self) -> list[str]: ...

@final
class Process:
    @property
    def run(self) -> Path | None: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def start_ticks(self) -> int | None: ...
    @property
    def program(self) -> str | None: ...
    @property
    def is_root(self) -> bool: ...
    @property
    def sessions(self) -> list[ProcessSession]: ...
    @property
    def captures(self) -> list[Path]: ...
    @property
    def bundles(self) -> list[Path]: ...
    @property
    def snapshots(self) -> list[Path]: ...
    @property
    def exceptions(self) -> list[Path]: ...
    @property
    def end(self) -> ProcessEnd: ...
    @property
    def started_at_ns(self) -> int | None: ...
    @property
    def ended_at_ns(self) -> int | None: ...
    @property
    def peak_rss_bytes(self) -> int | None: ...
    @property
    def heap_peak_bytes(self) -> int | None: ...

@final
class ProcessSession:
    @property
    def path(self) -> Path: ...
    @property
    def viewpoint(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def status(self) -> str | None: ...
    @property
    def started_at_ns(self) -> int | None: ...
    @property
    def ended_at_ns(self) -> int | None: ...
    @property
    def host(self) -> str | None: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def rank(self) -> int | None: ...
    @property
    def local_rank(self) -> int | None: ...
    @property
    def world_size(self) -> int | None: ...

@final
class ProcessEnd:
    @property
    def state(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def cause(self) -> str | None: ...
    @property
    def verdict(self) -> str | None: ...

RUN_VARIABLE: str
RUNS_VARIABLE: str
CAPTURE_FILE: str
JAX_FILE: str
JAX_PEAK_PROFILE: str
JAX_END_PROFILE: str
JAX_PROFILE: str
RUNS_DIRECTORY: str
DUMPS_DIRECTORY: str

def find_runs(path: str | os.PathLike[str]) -> list[Run]: ...
def find_processes(path: str | os.PathLike[str]) -> list[Process]: ...
def session_directory(run: str | os.PathLike[str], rank: int, device: int) -> Path: ...
def unused_directory(directory: str | os.PathLike[str]) -> Path: ...
def run_interval_ms(run: str | os.PathLike[str]) -> int | None: ...

# The bundle of `diagnose`: its files, its private directory, its report.
DIAGNOSE_REPORT_FILE: str
DIAGNOSE_MANIFEST_FILE: str
DIAGNOSE_SUMMARY_FILE: str
DIAGNOSE_ENVIRONMENT_FILE: str
DIAGNOSE_TIMELINE_FILE: str
DIAGNOSE_MANIFEST_VERSION: int
DIAGNOSE_HIGH_UTILIZATION: float
DIAGNOSE_FRAGMENTATION: float

@final
class DiagnoseSummary:
    def __new__(
        cls,
        backend: str | None,
        risk_flags: dict[str, bool],
        metrics: dict[str, float | int | None],
        suggestions: Sequence[str],
    ) -> Self: ...

def diagnose_obstacle(output: str | os.PathLike[str]) -> Path | None: ...
def diagnose_directory(output: str | os.PathLike[str] | None, prefix: str) -> Path: ...
def diagnose_report(
    summary: DiagnoseSummary,
    *,
    tool_name: str,
    tool_version: str,
    exit_code: int,
    status: str,
    session_id: str,
    files: Sequence[str],
    thresholds: dict[str, float],
    error: str | None,
    generated_at_utc: str,
) -> dict[str, Any]: ...

# Runs made of objects of the caller; `members` are the places of their sessions.
RUN_ENVELOPE_FILE: str
RUN_ENVELOPE_FORMAT: str
RUN_ENVELOPE_VERSION: int

@final
class RunContext:
    @property
    def run_id(self) -> str: ...
    @property
    def explicit(self) -> bool: ...
    @property
    def title(self) -> str | None: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def started_at_ns(self) -> int | None: ...
    @property
    def ended_at_ns(self) -> int | None: ...
    @property
    def source_path(self) -> str: ...
    @property
    def source_kind(self) -> str: ...
    @property
    def members(self) -> list[int]: ...

@final
class RunConflict:
    @property
    def kind(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def runs(self) -> list[str]: ...
    @property
    def message(self) -> str: ...

@final
class RunIdentities:
    @property
    def sessions(self) -> dict[str, str]: ...
    @property
    def jobs(self) -> dict[str, str]: ...
    @property
    def sources(self) -> dict[tuple[str, str], str]: ...
    @property
    def conflicts(self) -> list[RunConflict]: ...

def run_contexts(
    sessions: Sequence[_SessionRowLike], envelopes: Sequence[_CatalogRunEnvelope]
) -> list[RunContext]: ...
def run_identities(contexts: Sequence[_RunContext]) -> RunIdentities: ...
def run_envelope(payload: Mapping[str, Any], path: Path) -> dict[str, Any] | None: ...
def is_run_envelope(payload: Mapping[str, Any]) -> bool: ...

# What an event is on a timeline.
LANDMARK_TYPES: list[str]

@final
class Landmark:
    @property
    def kind(self) -> str: ...
    @property
    def severity(self) -> str: ...
    @property
    def label(self) -> str: ...

def landmark(
    event_type: str, has_oom_mark: bool, oom_reason: str | None, context: str | None
) -> Landmark | None: ...

# Rows of attachments made of objects of the caller; those of one attachment come without its metadata.
def run_of_identity(
    source: tuple[str, str] | None,
    session_id: str | None,
    job_id: str | None,
    index: _models.RunIdentityIndex,
) -> str | None: ...
def envelope_attachment(attachment: _models.CatalogRunAttachment, envelope: _CatalogRunEnvelope) -> _Row: ...
def sidecar_attachment(attachment: _ExternalAttachment, index: _models.RunIdentityIndex) -> _Row | None: ...
def sink_attachments(
    path: Path,
    manifest: Path | None,
    sessions: Sequence[_SessionSummary],
    index: _models.RunIdentityIndex,
) -> list[_Row]: ...
def segment_attachments(
    path: Path,
    segments: Sequence[_Segment],
    sessions: Sequence[_SessionSummary],
    index: _models.RunIdentityIndex,
) -> list[_Row]: ...
def rollup_attachments(
    path: Path,
    sessions: Sequence[_SessionSummary],
    segment_count: int,
    index: _models.RunIdentityIndex,
) -> list[_Row]: ...
def diagnose_attachments(
    path: Path,
    manifest: Path | None,
    session: _SessionSummary,
    status: str,
    index: _models.RunIdentityIndex,
) -> list[_Row]: ...
def file_attachments(sessions: Sequence[_SessionRowLike], index: _models.RunIdentityIndex) -> list[_Row]: ...
def bundle_attachment(
    path: Path,
    created_at_utc: str | None,
    session_id: str,
    session: _SessionRowLike | None,
    index: _models.RunIdentityIndex,
) -> _Row | None: ...
def is_run_wanted(row: _models.RunRow, filters: _models.RunFilter) -> bool: ...
def is_attachment_wanted(row: _models.RunAttachmentRow, filters: _models.RunAttachmentFilter) -> bool: ...

# What a report may contain; the word for each exit code.
REPORT_FORMAT: str
REPORT_SCHEMA_VERSION: int
REPORT_SEVERITIES: list[str]
VERDICT_STATUSES: dict[int, str]

def check_report(report: Mapping[str, Any]) -> None: ...

# The sessions of a job's inputs, joined, and the place of the selected one.
@final
class RankArtifacts:
    @property
    def sessions(self) -> list[LoadedSession]: ...
    @property
    def selected(self) -> int | None: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def sources(self) -> list[str]: ...

def load_rank_artifacts(paths: Sequence[str | os.PathLike[str]], session_id: str | None) -> RankArtifacts: ...
