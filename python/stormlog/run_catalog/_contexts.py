"""Which sessions make a run, and which run an attachment belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from stormlog.run_catalog._models import (
    CatalogRunEnvelope,
    RunAttachmentFilter,
    RunAttachmentRow,
    RunContext,
    RunFilter,
    RunIdentityConflict,
    RunIdentityIndex,
    RunRow,
    SessionRowLike,
)

_Key = TypeVar("_Key", str, tuple[str, str])


def build_run_contexts(
    sessions: Sequence[SessionRowLike], envelopes: Sequence[CatalogRunEnvelope]
) -> dict[str, RunContext]:
    """The runs that say so themselves, then those of the sessions that no run names."""
    contexts = {envelope.run_id: _explicit(envelope, sessions) for envelope in envelopes}
    named = {session.session_id for context in contexts.values() for session in context.sessions}
    groups: dict[str, list[SessionRowLike]] = defaultdict(list)
    for session in sessions:
        if session.session_id not in named:
            base = f"session:{session.session_id}" if session.job_id is None else f"job:{session.job_id}"
            groups[base].append(session)
    for base, members in groups.items():
        run_id = _unused(base, contexts)
        contexts[run_id] = _implicit(run_id, sorted(members, key=_start))
    return contexts


def _explicit(envelope: CatalogRunEnvelope, sessions: Sequence[SessionRowLike]) -> RunContext:
    wanted = {reference.session_id for reference in envelope.sessions}
    # A session that lies in several places is a member once.
    found = {session.session_id: session for session in reversed(sessions) if session.session_id in wanted}
    members = list(found.values())
    if not members and envelope.job_id is not None:
        members = [session for session in sessions if session.job_id == envelope.job_id]
    members.sort(key=_start)
    started, ended = envelope.started_at_ns, envelope.ended_at_ns
    return RunContext(
        run_id=envelope.run_id,
        explicit=True,
        title=envelope.title,
        description=envelope.description,
        job_id=envelope.job_id or _common_job(members),
        started_at_ns=_first_start(members) if started is None else started,
        ended_at_ns=_last_end(members) if ended is None else ended,
        source_path=str(envelope.path),
        source_kind="run_envelope",
        source_namespace=envelope.source_namespace,
        source_ref=envelope.source_ref,
        sessions=tuple(members),
        tags=envelope.tags,
        metadata=envelope.metadata,
    )


def _implicit(run_id: str, members: Sequence[SessionRowLike]) -> RunContext:
    job_id = _common_job(members)
    return RunContext(
        run_id=run_id,
        explicit=False,
        title=f"Session {members[0].session_id}" if job_id is None else f"Distributed job {job_id}",
        description=None,
        job_id=job_id,
        started_at_ns=_first_start(members),
        ended_at_ns=_last_end(members),
        source_path=members[0].source_path,
        source_kind="implicit_run",
        source_namespace=None,
        source_ref=None,
        sessions=tuple(members),
    )


def _unused(base: str, taken: Mapping[str, object]) -> str:
    if base not in taken:
        return base
    candidate, suffix = f"implicit:{base}", 1
    while candidate in taken:
        suffix += 1
        candidate = f"implicit:{base}:{suffix}"
    return candidate


def _start(session: SessionRowLike) -> tuple[int, str]:
    return session.started_at_ns, session.session_id


def _common_job(sessions: Iterable[SessionRowLike]) -> str | None:
    jobs = {session.job_id for session in sessions if session.job_id is not None}
    return jobs.pop() if len(jobs) == 1 else None


def _first_start(sessions: Sequence[SessionRowLike]) -> int | None:
    return min((session.started_at_ns for session in sessions), default=None)


def _last_end(sessions: Sequence[SessionRowLike]) -> int | None:
    """The last end, once all have ended."""
    ends = [session.ended_at_ns for session in sessions if session.ended_at_ns is not None]
    return max(ends, default=None) if len(ends) == len(sessions) else None


def build_identity_index(contexts: Mapping[str, RunContext]) -> RunIdentityIndex:
    """Which run each session, job and source belongs to; what several runs claim belongs to none."""
    sessions: dict[str, set[str]] = defaultdict(set)
    jobs: dict[str, set[str]] = defaultdict(set)
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for context in contexts.values():
        if context.job_id is not None:
            jobs[context.job_id].add(context.run_id)
        if context.source_namespace is not None and context.source_ref is not None:
            sources[context.source_namespace, context.source_ref].add(context.run_id)
        for session in context.sessions:
            sessions[session.session_id].add(context.run_id)
            if session.job_id is not None:
                jobs[session.job_id].add(context.run_id)
    conflicts: list[RunIdentityConflict] = []
    return RunIdentityIndex(
        session_to_run=_claimed_once("session_id", sessions, conflicts),
        job_to_run=_claimed_once("job_id", jobs, conflicts),
        source_ref_to_run=_claimed_once("source_ref", sources, conflicts),
        conflicts=tuple(conflicts),
    )


def _claimed_once(
    kind: str, claims: Mapping[_Key, set[str]], conflicts: list[RunIdentityConflict]
) -> dict[_Key, str]:
    once: dict[_Key, str] = {}
    for value, runs in claims.items():
        if len(runs) == 1:
            once[value] = next(iter(runs))
        else:
            name = value if isinstance(value, str) else ":".join(value)
            conflicts.append(RunIdentityConflict(kind, name, tuple(sorted(runs))))
    return once


def run_id_for_identity(
    *,
    run_id: str | None,
    session_id: str | None,
    job_id: str | None,
    source_namespace: str | None,
    source_ref: str | None,
    identity_index: RunIdentityIndex,
) -> str | None:
    """The run that something belongs to: the one it names, or by its source, its session, its job."""
    found = run_id
    if found is None and source_namespace is not None and source_ref is not None:
        found = identity_index.source_ref_to_run.get((source_namespace, source_ref))
    if found is None and session_id is not None:
        found = identity_index.session_to_run.get(session_id)
    if found is None and job_id is not None:
        found = identity_index.job_to_run.get(job_id)
    return found


def run_matches(row: RunRow, filters: RunFilter) -> bool:
    """Whether a run is asked for."""
    return (
        _is(filters.run_id, row.run_id)
        and (filters.session_id is None or filters.session_id in row.sessions)
        and _is(filters.job_id, row.job_id)
        and (filters.rank is None or filters.rank in row.ranks)
        and _is(filters.source_namespace, row.source_namespace)
        and _is(filters.source_ref, row.source_ref)
    )


def run_attachment_matches(row: RunAttachmentRow, filters: RunAttachmentFilter) -> bool:
    """Whether an attachment is asked for."""
    return all(_is(wanted, getattr(row, name)) for name, wanted in vars(filters).items())


def _is(wanted: object, value: object) -> bool:
    return wanted is None or wanted == value
