"""The parts of a query about a moment, and its answer: see `QueryStore.correlate`.

Also the attachments that a `stormlog_attachments.json` beside an artifact names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stormlog._row import Row

__all__ = [
    "ATTACHMENTS_FILENAME",
    "ATTACHMENTS_FORMAT",
    "ATTACHMENTS_SCHEMA_VERSION",
    "CLOCK_DOMAIN_UNIX_EPOCH_NS",
    "CLOCK_NORMALIZATION_PRODUCER_EPOCH_NS",
    "DEFAULT_CORRELATION_WINDOW_NS",
    "AttachmentFilter",
    "CorrelationEvidence",
    "CorrelationFilter",
    "CorrelationResult",
    "CorrelationScope",
    "ExternalAttachment",
]

ATTACHMENTS_FILENAME = "stormlog_attachments.json"
ATTACHMENTS_FORMAT = "stormlog.attachments"
ATTACHMENTS_SCHEMA_VERSION = 1
CLOCK_DOMAIN_UNIX_EPOCH_NS = "unix_epoch_ns"
CLOCK_NORMALIZATION_PRODUCER_EPOCH_NS = "producer_emitted_epoch_ns"
DEFAULT_CORRELATION_WINDOW_NS = 60_000_000_000

CorrelationScope = Literal["session", "distributed"]


@dataclass(frozen=True)
class CorrelationFilter:
    """Around which moment or record, how far, and what of it."""

    session_id: str | None = None
    job_id: str | None = None
    rank: int | None = None
    scope: CorrelationScope = "session"
    at_ns: int | None = None
    record_id: str | None = None
    window_ns: int = DEFAULT_CORRELATION_WINDOW_NS
    kinds: tuple[str, ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.scope not in {"session", "distributed"}:
            raise ValueError("scope must be 'session' or 'distributed'")
        if self.window_ns < 0:
            raise ValueError("window_ns must be >= 0")
        if self.limit is not None and self.limit < 0:
            raise ValueError("limit must be >= 0")


@dataclass(frozen=True)
class CorrelationEvidence(Row):
    """Something that happened near the moment, and how surely it belongs to it."""

    evidence_id: str
    kind: str
    title: str
    session_id: str | None
    job_id: str | None
    rank: int | None
    world_size: int | None
    start_ns: int | None
    end_ns: int | None
    source_path: str
    source_kind: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    confidence: str = "low"
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class CorrelationResult(Row):
    """The moment that was asked about and the evidence around it, the surest first."""

    anchor: Mapping[str, Any]
    evidence: Sequence[CorrelationEvidence] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class AttachmentFilter:
    """Which attachments; None is any."""

    session_id: str | None = None
    job_id: str | None = None
    rank: int | None = None
    kind: str | None = None


@dataclass(frozen=True)
class ExternalAttachment(Row):
    """Something a sidecar file names: a dashboard, a trace, a note."""

    title: str
    kind: str
    attachment_id: str | None
    url: str | None
    path: str | None
    session_id: str | None
    job_id: str | None
    rank: int | None
    start_ns: int | None
    end_ns: int | None
    created_at_utc: str | None
    updated_at_utc: str | None
    metadata: Mapping[str, Any]
    sidecar_path: str
    run_id: str | None = None
    storage: str | None = None
    source_namespace: str | None = None
    source_ref: str | None = None
