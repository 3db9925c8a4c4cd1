"""Which phase something happened in, and how that is written.

The rules are native (`crates/analyze/src/phases`): the phase an event names wins, then the innermost of the
thread it came from, then the innermost of each thread. Several are `ambiguous`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog.phases.runtime import format_phase_path

if TYPE_CHECKING:
    from stormlog.phases.replay import PhaseReplayIndex, PhaseSpan

__all__ = [
    "PhaseAttribution",
    "PhaseSummary",
    "attribute_active_spans",
    "format_phase_path",
    "merge_phase_attributions",
    "phase_attribution_to_payload",
    "resolve_phase_for_event",
    "summarize_phase_attribution",
    "summarize_phase_resolution",
]


@dataclasses.dataclass(frozen=True)
class PhaseSummary:
    """The one phase to show where several are possible, and where it comes from."""

    phase_path: str
    source: str


@dataclasses.dataclass(frozen=True)
class PhaseAttribution:
    """The phase, or the phases, something belongs to."""

    phase_resolution: str
    phase_source: str | None = None
    phase_path: str | None = None
    phase_paths: list[str] = dataclasses.field(default_factory=list)
    scope_id: str | None = None
    thread_id: int | None = None
    thread_name: str | None = None
    phase_summary: PhaseSummary | None = None


def attribute_active_spans(
    spans: Sequence[PhaseSpan],
    *,
    strategy: str = "deepest_per_thread",
    origin_thread_id: int | None = None,
    origin_phase_scope_id: str | None = None,
) -> PhaseAttribution | None:
    """The attribution among phases that were open at one moment."""
    if strategy != "deepest_per_thread":
        raise ValueError(f"Unsupported phase attribution strategy: {strategy}")
    found = _native.analysis.attribute_phases(spans, origin_thread_id, origin_phase_scope_id)
    if found is None:
        return None
    return PhaseAttribution(
        "unique" if found.unique else "ambiguous",
        phase_source=found.source,
        phase_path=found.paths[0] if found.unique else None,
        phase_paths=found.paths,
        scope_id=found.scope_id,
        thread_id=found.thread_id,
        thread_name=found.thread_name,
        phase_summary=None if found.likely is None else PhaseSummary(found.likely, "heuristic"),
    )


def resolve_phase_for_event(index: PhaseReplayIndex, event: Any) -> PhaseAttribution | None:
    """The phase of an event, by its time, session and rank and what it says of its origin."""
    timestamp_ns, session_id = field_of(event, "timestamp_ns"), field_of(event, "session_id")
    rank = rank_of(event)
    if not isinstance(timestamp_ns, int) or not isinstance(session_id, str) or rank is None:
        return None
    thread_id = _origin(event, "origin_thread_id", int)
    scope_id = _origin(event, "origin_phase_scope_id", str)
    return index.resolve(
        timestamp_ns=timestamp_ns,
        session_id=session_id,
        rank=rank,
        origin_thread_id=thread_id,
        origin_phase_scope_id=scope_id,
    )


def merge_phase_attributions(
    first: PhaseAttribution | None, second: PhaseAttribution | None
) -> PhaseAttribution | None:
    """Both together; only the same phase of the same thread stays unique."""
    if first is None or second is None:
        return second if first is None else first
    ours, theirs = _paths(first), _paths(second)
    if not ours or not theirs:
        return second if not ours else first
    paths = _native.analysis.merge_phases(first, second)
    return first if paths is None else PhaseAttribution("ambiguous", phase_paths=paths)


def phase_attribution_to_payload(attribution: PhaseAttribution | None) -> dict[str, Any] | None:
    """The object form; what is not known is left out."""
    if attribution is None:
        return None
    payload: dict[str, Any] = {
        "phase_resolution": attribution.phase_resolution,
        "phase_paths": [path for path in attribution.phase_paths if path],
    }
    for name in ("phase_source", "phase_path", "scope_id", "thread_id", "thread_name"):
        value = getattr(attribution, name)
        if value is not None:
            payload[name] = value
    if attribution.phase_summary is not None:
        payload["phase_summary"] = dataclasses.asdict(attribution.phase_summary)
    return payload


def summarize_phase_attribution(attribution: PhaseAttribution | None) -> str | None:
    """The attribution as people read it."""
    if attribution is None:
        return None
    shown = attribution.phase_summary
    if shown is not None:
        return f"(likely) {shown.phase_path}" if shown.source == "heuristic" else shown.phase_path
    return summarize_phase_resolution(
        phase_resolution=attribution.phase_resolution,
        phase_path=attribution.phase_path,
        phase_paths=attribution.phase_paths,
    )


def summarize_phase_resolution(
    *, phase_resolution: str | None, phase_path: str | None = None, phase_paths: Sequence[str] | None = None
) -> str | None:
    """A resolution as people read it: the path, or all of them behind `(ambiguous)`."""
    if phase_resolution not in ("unique", "ambiguous"):
        return None
    paths = [path for path in phase_paths or () if path]
    return _native.analysis.phase_label(phase_resolution == "unique", phase_path or None, paths)


def field_of(event: Any, name: str, default: Any = None) -> Any:
    """A field of an event, be it a mapping or an object."""
    return event.get(name, default) if isinstance(event, Mapping) else getattr(event, name, default)


def rank_of(event: Any) -> int | None:
    """The rank of an event, also when it is written as text; None when it is not a number."""
    value = field_of(event, "rank", 0)
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _origin(event: Any, name: str, kind: type) -> Any:
    metadata = field_of(event, "metadata", {})
    stated = metadata.get(name) if isinstance(metadata, dict) else None
    for value in (field_of(event, name), stated):
        if isinstance(value, kind) and value != "":
            return value
    return None


def _paths(attribution: PhaseAttribution) -> list[str]:
    paths = attribution.phase_paths or [attribution.phase_path or ""]
    return [path for path in paths if path]
