"""Which sessions make a run, and which run an attachment belongs to.

The rules are native (`crates/catalog/src/query/runs.rs`, `links.rs`), the same as for the commands; the
sessions and envelopes are the caller's own objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stormlog import _native
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


def build_run_contexts(
    sessions: Sequence[SessionRowLike], envelopes: Sequence[CatalogRunEnvelope]
) -> dict[str, RunContext]:
    """The runs that describe themselves, then those of the sessions that no run names."""
    # Of two envelopes with one id the later one counts.
    described = {envelope.run_id: envelope for envelope in envelopes}
    contexts: dict[str, RunContext] = {}
    for found in _native.catalog.run_contexts(sessions, list(described.values())):
        envelope = described[found.run_id] if found.explicit else None
        contexts[found.run_id] = RunContext(
            run_id=found.run_id,
            explicit=found.explicit,
            title=found.title if envelope is None else envelope.title,
            description=None if envelope is None else envelope.description,
            job_id=found.job_id,
            started_at_ns=found.started_at_ns,
            ended_at_ns=found.ended_at_ns,
            source_path=found.source_path,
            source_kind=found.source_kind,
            source_namespace=None if envelope is None else envelope.source_namespace,
            source_ref=None if envelope is None else envelope.source_ref,
            sessions=tuple(sessions[place] for place in found.members),
            tags=() if envelope is None else envelope.tags,
            metadata={} if envelope is None else envelope.metadata,
        )
    return contexts


def build_identity_index(contexts: Mapping[str, RunContext]) -> RunIdentityIndex:
    """Which run each session, job and source belongs to; what several runs claim belongs to none."""
    found = _native.catalog.run_identities(list(contexts.values()))
    return RunIdentityIndex(
        session_to_run=found.sessions,
        job_to_run=found.jobs,
        source_ref_to_run=found.sources,
        conflicts=tuple(
            RunIdentityConflict(conflict.kind, conflict.value, tuple(conflict.runs))
            for conflict in found.conflicts
        ),
    )


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
    if run_id is not None:
        return run_id
    source = None if source_namespace is None or source_ref is None else (source_namespace, source_ref)
    return _native.catalog.run_of_identity(source, session_id, job_id, identity_index)


def run_matches(row: RunRow, filters: RunFilter) -> bool:
    """Whether a run is asked for."""
    return _native.catalog.is_run_wanted(row, filters)


def run_attachment_matches(row: RunAttachmentRow, filters: RunAttachmentFilter) -> bool:
    """Whether an attachment is asked for."""
    return _native.catalog.is_attachment_wanted(row, filters)
