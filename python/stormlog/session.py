"""Sessions: one capture from start to end, its state, and the default one when several are found.

The states and ids are the native ones; what is here works on anything that looks like an event or a summary.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, cast

from stormlog import _native

__all__ = [
    "SESSION_STATUSES",
    "SESSION_STATUS_COMPLETED",
    "SESSION_STATUS_INCOMPLETE",
    "SESSION_STATUS_INTERRUPTED",
    "SESSION_STATUS_RUNNING",
    "SessionSummary",
    "create_session_summary",
    "finalize_session_summary",
    "infer_session_summary_from_events",
    "new_session_id",
    "normalize_session_status",
    "now_ns",
    "select_default_loaded_session",
    "select_default_session",
    "session_summary_from_dict",
    "session_summary_to_dict",
    "sort_session_summaries",
    "stable_legacy_session_id",
    "update_session_summary",
]

SESSION_STATUS_RUNNING = "running"
SESSION_STATUS_COMPLETED = "completed"
SESSION_STATUS_INTERRUPTED = "interrupted"
SESSION_STATUS_INCOMPLETE = "incomplete"

# The one whose end is proven comes first. A summary made by hand may carry any other word: it comes last.
_SELECTION_ORDER = (
    SESSION_STATUS_COMPLETED,
    SESSION_STATUS_INTERRUPTED,
    SESSION_STATUS_INCOMPLETE,
    SESSION_STATUS_RUNNING,
)
SESSION_STATUSES = frozenset(_SELECTION_ORDER)

_KEEP = object()


@dataclasses.dataclass(frozen=True)
class SessionSummary:
    """Identity and life of one session."""

    session_id: str
    status: str
    started_at_ns: int
    ended_at_ns: int | None
    host: str
    pid: int
    job_id: str | None = None
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    source: str = "stormlog.session"


class _Loaded(Protocol):
    summary: SessionSummary


_Session = TypeVar("_Session", bound=SessionSummary | _Loaded)


def now_ns() -> int:
    """Wall-clock time in nanoseconds since the epoch."""
    return time.time_ns()


def new_session_id() -> str:
    """A new opaque session id."""
    return _native.telemetry.new_session_id()


def stable_legacy_session_id(*parts: object) -> str:
    """The synthetic id of an artifact that carries none: the same parts give the same id everywhere."""
    return _native.telemetry.legacy_session_id([str(part) for part in parts if part is not None])


def create_session_summary(
    *,
    source: str,
    status: str = SESSION_STATUS_RUNNING,
    session_id: str | None = None,
    started_at_ns: int | None = None,
    ended_at_ns: int | None = None,
    host: str | None = None,
    pid: int | None = None,
    job_id: str | None = None,
    rank: int = 0,
    local_rank: int = 0,
    world_size: int = 1,
) -> SessionSummary:
    """A summary of a session of this process, now, on this machine, where nothing else is given."""
    return SessionSummary(
        session_id=session_id or new_session_id(),
        status=normalize_session_status(status),
        started_at_ns=int(now_ns() if started_at_ns is None else started_at_ns),
        ended_at_ns=None if ended_at_ns is None else int(ended_at_ns),
        host=host or _host(),
        pid=int(os.getpid() if pid is None else pid),
        job_id=job_id,
        rank=int(rank),
        local_rank=int(local_rank),
        world_size=max(1, int(world_size)),
        source=source,
    )


def _host() -> str:
    # `socket` is a large import, and most callers know their host.
    import socket

    return socket.gethostname()


def update_session_summary(
    summary: SessionSummary,
    *,
    status: str | None = None,
    ended_at_ns: int | object | None = _KEEP,
    source: str | None = None,
) -> SessionSummary:
    """A copy with another state, end or source."""
    changes: dict[str, Any] = {}
    if status is not None:
        changes["status"] = normalize_session_status(status)
    if ended_at_ns is not _KEEP:
        changes["ended_at_ns"] = None if ended_at_ns is None else int(cast(int, ended_at_ns))
    if source is not None:
        changes["source"] = source
    return dataclasses.replace(summary, **changes)


def finalize_session_summary(summary: SessionSummary, *, ended_at_ns: int | None = None) -> SessionSummary:
    """The summary at its end. A session that is no longer running keeps its state: trouble stays visible."""
    running = summary.status == SESSION_STATUS_RUNNING
    return update_session_summary(
        summary,
        status=SESSION_STATUS_COMPLETED if running else summary.status,
        ended_at_ns=now_ns() if ended_at_ns is None else ended_at_ns,
    )


def normalize_session_status(value: object) -> str:
    """The state a word stands for, whatever its case and surrounding space; ValueError for any other word."""
    return _native.telemetry.normalize_session_status(value)


def session_summary_to_dict(summary: SessionSummary) -> dict[str, Any]:
    """The object form, ready for JSON."""
    return dataclasses.asdict(summary)


def session_summary_from_dict(payload: Mapping[str, Any]) -> SessionSummary:
    """Reads the object form; ValueError names what is wrong with it."""
    summary = session_summary_of(_native.telemetry.session_summary_from_record(payload))
    # Job ids were not always text, and the native form holds nothing else.
    job_id = payload.get("job_id")
    return summary if job_id == summary.job_id else dataclasses.replace(summary, job_id=job_id)


def session_summary_of(session: _native.telemetry.Session) -> SessionSummary:
    """The summary of a session that was read or made natively."""
    return SessionSummary(
        session_id=session.session_id,
        status=session.status,
        started_at_ns=session.started_at_ns,
        ended_at_ns=session.ended_at_ns,
        host=session.host,
        pid=session.pid,
        job_id=session.job_id,
        rank=session.rank,
        local_rank=session.local_rank,
        world_size=session.world_size,
        source=session.source,
    )


def infer_session_summary_from_events(
    *,
    session_id: str,
    events: Iterable[Any],
    source: str,
    fallback_status: str = SESSION_STATUS_INCOMPLETE,
) -> SessionSummary:
    """What bare events prove about their session: a `stop` says that it completed, and when."""
    first: Any = None
    started_at_ns = 0
    ended_at_ns: int | None = None
    for event in events:
        at = int(event.timestamp_ns)
        if first is None or at < started_at_ns:
            first, started_at_ns = event, at
        if getattr(event, "event_type", "") == "stop" and (ended_at_ns is None or at >= ended_at_ns):
            ended_at_ns = at
    if first is None:
        return create_session_summary(source=source, status=fallback_status, session_id=session_id)
    fallback = normalize_session_status(fallback_status)
    return create_session_summary(
        source=source,
        status=fallback if ended_at_ns is None else SESSION_STATUS_COMPLETED,
        session_id=session_id,
        started_at_ns=started_at_ns,
        ended_at_ns=ended_at_ns,
        host=str(getattr(first, "host", "unknown")),
        pid=int(getattr(first, "pid", -1)),
        job_id=getattr(first, "job_id", None),
        rank=int(getattr(first, "rank", 0)),
        local_rank=int(getattr(first, "local_rank", 0)),
        world_size=int(getattr(first, "world_size", 1)),
    )


def sort_session_summaries(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """The summaries, the one meant by default first: proven ones, then the newest."""
    return sorted(summaries, key=_selection_key)


def select_default_session(sessions: Iterable[_Session]) -> _Session | None:
    """The session meant when none is named, or None without sessions."""
    return min(sessions, key=lambda session: _selection_key(_summary_of(session)), default=None)


def select_default_loaded_session(sessions: Iterable[Any]) -> Any | None:
    """The same for loaded sessions; one without events is chosen only where there is no other."""
    every = list(sessions)
    return select_default_session([loaded for loaded in every if len(loaded.events) > 0] or every)


def _summary_of(session: SessionSummary | _Loaded) -> SessionSummary:
    return session if isinstance(session, SessionSummary) else session.summary


def _selection_key(summary: SessionSummary) -> tuple[int, int, int, str]:
    known = summary.status in SESSION_STATUSES
    priority = _SELECTION_ORDER.index(summary.status) if known else len(_SELECTION_ORDER)
    newest = int(summary.ended_at_ns or summary.started_at_ns)
    return priority, -newest, -summary.started_at_ns, summary.session_id
