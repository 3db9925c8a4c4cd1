"""Hidden memory: what a device has in use beyond what the framework's allocator holds.

Finds spikes, drift and fragmentation in telemetry. The rules are native (`docs/rules/hidden_gap.md`); here
they get their words. Must never fail on a series without time or spread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog._telemetry.event_list import passing, untouched
from stormlog.utils import format_bytes

if TYPE_CHECKING:
    from stormlog.phases import PhaseAttribution, PhaseReplayIndex
    from stormlog.telemetry import TelemetryEventLike

__all__ = ["GapFinding", "analyze_hidden_memory_gaps"]


@dataclasses.dataclass
class GapFinding:
    """One class of hidden memory: `transient_spike`, `persistent_drift` or `fragmentation_like`."""

    classification: str
    severity: str
    confidence: float
    evidence: dict[str, Any]
    description: str
    remediation: list[str]
    evidence_timestamp_ns: int | None = None
    phase_attribution: PhaseAttribution | None = None


def analyze_hidden_memory_gaps(
    events: Sequence[TelemetryEventLike],
    thresholds: Mapping[str, float],
    format_memory: Callable[[int], str],
    remediation_by_classification: Mapping[str, list[str]],
    phase_resolver: PhaseReplayIndex | None = None,
) -> list[GapFinding]:
    """The classes of hidden memory in the samples among events, the worst first."""
    found = []
    buffer = untouched(events)
    for gap in _native.analysis.memory_gaps(
        passing(events) if buffer is None else buffer,
        ratio=thresholds["gap_ratio_threshold"],
        spike_zscore=thresholds["gap_spike_zscore"],
        drift_r_squared=thresholds["gap_drift_r_squared"],
        fragmentation=thresholds["gap_fragmentation_ratio"],
    ):
        kind, description = gap.classification, gap.description
        if kind == "persistent_drift" and format_memory is not format_bytes:
            rate = format_memory(int(abs(gap.evidence["slope_bytes_per_sec"])))
            share = gap.evidence["r_squared"]
            description = f"Device-vs-allocator gap is drifting upward at {rate}/s (R²={share:.2f})."
        shown = events[gap.event]
        found.append(
            GapFinding(
                classification=kind,
                severity=gap.severity,
                confidence=gap.confidence,
                evidence=gap.evidence,
                description=description,
                remediation=list(remediation_by_classification.get(kind, [])),
                evidence_timestamp_ns=shown.timestamp_ns,
                phase_attribution=None if phase_resolver is None else phase_resolver.resolve_for_event(shown),
            )
        )
    return found
