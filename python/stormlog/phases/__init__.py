"""Phases: named, nested stretches of a program — recorded, replayed from events, and blamed.

`runtime` records them in a running program, `replay` rebuilds them from events, `policy` says which phase
something happened in. Ambiguity is kept and shown, never resolved by a guess that looks like a fact.
"""

from stormlog.phases.policy import (
    PhaseAttribution,
    PhaseSummary,
    attribute_active_spans,
    merge_phase_attributions,
    phase_attribution_to_payload,
    resolve_phase_for_event,
    summarize_phase_attribution,
    summarize_phase_resolution,
)
from stormlog.phases.replay import (
    PhaseBoundaryRecord,
    PhaseReplayIndex,
    PhaseSpan,
    is_phase_boundary_event,
    parse_phase_boundary,
)
from stormlog.phases.runtime import (
    PHASE_ENTER_EVENT,
    PHASE_EXIT_EVENT,
    PHASE_SCOPE_ATTRIBUTES_KEY,
    PHASE_SCOPE_METADATA_KEY,
    PhaseBoundary,
    PhaseHandle,
    PhaseProtocolError,
    PhaseRecorder,
    PhaseToken,
    format_phase_path,
)

__all__ = [
    "PHASE_ENTER_EVENT",
    "PHASE_EXIT_EVENT",
    "PHASE_SCOPE_ATTRIBUTES_KEY",
    "PHASE_SCOPE_METADATA_KEY",
    "PhaseAttribution",
    "PhaseBoundary",
    "PhaseBoundaryRecord",
    "PhaseHandle",
    "PhaseProtocolError",
    "PhaseRecorder",
    "PhaseReplayIndex",
    "PhaseSpan",
    "PhaseSummary",
    "PhaseToken",
    "attribute_active_spans",
    "format_phase_path",
    "is_phase_boundary_event",
    "merge_phase_attributions",
    "parse_phase_boundary",
    "phase_attribution_to_payload",
    "resolve_phase_for_event",
    "summarize_phase_attribution",
    "summarize_phase_resolution",
]
