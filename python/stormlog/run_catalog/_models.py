"""The shapes of runs and of what belongs to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from stormlog import _native
from stormlog._row import Row

AttachmentStorage = Literal["reference", "copy"]

RUN_ENVELOPE_FILENAME = _native.catalog.RUN_ENVELOPE_FILE
RUN_ENVELOPE_FORMAT = _native.catalog.RUN_ENVELOPE_FORMAT
RUN_ENVELOPE_SCHEMA_VERSION = _native.catalog.RUN_ENVELOPE_VERSION


class SessionRowLike(Protocol):
    """What has to be known of a session."""

    @property
    def session_id(self) -> str: ...
    @property
    def started_at_ns(self) -> int: ...
    @property
    def ended_at_ns(self) -> int | None: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def rank(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def source_path(self) -> str: ...
    @property
    def source_kind(self) -> str: ...
    @property
    def event_count(self) -> int | None: ...


class CatalogSourceLike(Protocol):
    """What has to be known of a source of events."""

    @property
    def path(self) -> Path: ...
    @property
    def source_kind(self) -> str: ...
    @property
    def manifest_path(self) -> Path | None: ...


class OOMBundleLike(Protocol):
    """What has to be known of an OOM bundle."""

    @property
    def bundle_path(self) -> Path: ...
    @property
    def created_at_utc(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...
    def as_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class CatalogRunSessionRef(Row):
    """A session that a run names."""

    session_id: str
    job_id: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    role: str | None
    source_namespace: str | None
    source_ref: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CatalogRunAttachment(Row):
    """An attachment that a run names."""

    title: str
    kind: str
    storage: AttachmentStorage
    attachment_id: str | None
    url: str | None
    path: str | None
    run_id: str | None
    session_id: str | None
    job_id: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    start_ns: int | None
    end_ns: int | None
    created_at_utc: str | None
    updated_at_utc: str | None
    source_namespace: str | None
    source_ref: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CatalogRunEnvelope(Row):
    """What a `stormlog_run.json` says."""

    run_id: str
    path: Path
    title: str | None
    description: str | None
    job_id: str | None
    started_at_ns: int | None
    ended_at_ns: int | None
    created_at_utc: str | None
    updated_at_utc: str | None
    source_namespace: str | None
    source_ref: str | None
    tags: tuple[str, ...]
    sessions: tuple[CatalogRunSessionRef, ...]
    attachments: tuple[CatalogRunAttachment, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFilter:
    """Which runs; None is any."""

    run_id: str | None = None
    session_id: str | None = None
    job_id: str | None = None
    rank: int | None = None
    source_namespace: str | None = None
    source_ref: str | None = None


@dataclass(frozen=True)
class RunAttachmentFilter:
    """Which attachments of runs; None is any."""

    run_id: str | None = None
    session_id: str | None = None
    job_id: str | None = None
    rank: int | None = None
    kind: str | None = None
    source_namespace: str | None = None
    source_ref: str | None = None


@dataclass(frozen=True)
class RunRow(Row):
    """One run; `explicit` is true if a run record declares it, false if it was inferred from its sessions."""

    run_id: str
    explicit: bool
    title: str | None
    description: str | None
    job_id: str | None
    started_at_ns: int | None
    ended_at_ns: int | None
    source_path: str
    source_kind: str
    source_namespace: str | None
    source_ref: str | None
    session_count: int
    attachment_count: int
    sessions: tuple[str, ...]
    ranks: tuple[int, ...]
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunAttachmentRow(Row):
    """Something that belongs to a run: a file of ours, or what was named."""

    run_id: str
    title: str
    kind: str
    storage: AttachmentStorage
    attachment_id: str | None
    url: str | None
    path: str | None
    session_id: str | None
    job_id: str | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    start_ns: int | None
    end_ns: int | None
    source_path: str
    source_kind: str
    source_namespace: str | None
    source_ref: str | None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunContext:
    """A run with its sessions, before it becomes a row."""

    run_id: str
    explicit: bool
    title: str | None
    description: str | None
    job_id: str | None
    started_at_ns: int | None
    ended_at_ns: int | None
    source_path: str
    source_kind: str
    source_namespace: str | None
    source_ref: str | None
    sessions: tuple[SessionRowLike, ...]
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_row(self, attachment_count: int) -> RunRow:
        """The row, once it is known how much belongs to it."""
        fields = {name: value for name, value in vars(self).items() if name != "sessions"}
        return RunRow(
            **fields,
            session_count=len(self.sessions),
            attachment_count=attachment_count,
            sessions=tuple(session.session_id for session in self.sessions),
            ranks=tuple(sorted({session.rank for session in self.sessions})),
        )


@dataclass(frozen=True)
class RunIdentityConflict:
    """An identity that more than one run claims."""

    identity_kind: str
    identity_value: str
    run_ids: tuple[str, ...]

    @property
    def message(self) -> str:
        """The sentence that is shown."""
        return f"ambiguous run {self.identity_kind} {self.identity_value!r}: {', '.join(self.run_ids)}"


@dataclass(frozen=True)
class RunIdentityIndex:
    """Which run an identity belongs to, where only one claims it."""

    session_to_run: Mapping[str, str]
    job_to_run: Mapping[str, str]
    source_ref_to_run: Mapping[tuple[str, str], str]
    conflicts: tuple[RunIdentityConflict, ...]
