"""Spikes of hidden memory that belong to collective communication (NCCL and friends).

Three presets of sensitivity, each knob of which can be overridden; the rule is native
(`docs/rules/collective.md`) and linear in samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stormlog import _native
from stormlog._telemetry.event_list import passing, untouched
from stormlog.phases import merge_phase_attributions

if TYPE_CHECKING:
    from stormlog.phases import PhaseAttribution, PhaseReplayIndex
    from stormlog.telemetry import TelemetryEventLike

__all__ = [
    "CollectiveAttributionConfig",
    "CollectiveAttributionEvidence",
    "CollectiveAttributionResult",
    "attribute_collective_memory",
    "resolve_collective_attribution_config",
]

_MIB = 1 << 20


@dataclasses.dataclass
class CollectiveAttributionConfig:
    """The knobs; these are the preset `medium`."""

    preset: str = "medium"
    min_samples_per_rank: int = 6
    min_gap_bytes: int = 128 * _MIB
    min_gap_ratio: float = 0.04
    robust_zscore_threshold: float = 2.5
    marker_window_ns: int = 150_000_000
    interval_padding_ns: int = 120_000_000
    synchrony_window_ns: int = 120_000_000
    min_synchrony_ratio: float = 0.5
    min_confidence: float = 0.5


@dataclasses.dataclass
class CollectiveAttributionEvidence:
    """What an interval rests on."""

    marker_hits: int
    synchronized_ranks: int
    expected_world_size: int
    synchrony_ratio: float
    peak_gap_bytes: int
    peak_gap_ratio: float | None
    robust_zscore: float


@dataclasses.dataclass
class CollectiveAttributionResult:
    """A stretch of one rank's time whose hidden memory goes with a collective."""

    rank: int
    interval_start_ns: int
    interval_end_ns: int
    classification: str
    confidence: float
    reason_codes: list[str] = dataclasses.field(default_factory=list)
    evidence: CollectiveAttributionEvidence | None = None
    phase_attribution: PhaseAttribution | None = None


_PRESETS = {
    "low": CollectiveAttributionConfig(
        "low", 8, 256 * _MIB, 0.06, 3.0, 120_000_000, 100_000_000, 100_000_000, 0.6, 0.7
    ),
    "medium": CollectiveAttributionConfig(),
    "high": CollectiveAttributionConfig(
        "high", 5, 64 * _MIB, 0.025, 1.8, 180_000_000, 160_000_000, 180_000_000, 0.34, 0.35
    ),
}
# The least value of each knob, and the most of those that are shares.
_LEAST = {
    "min_gap_bytes": 0,
    "min_gap_ratio": 0,
    "marker_window_ns": 0,
    "interval_padding_ns": 0,
    "synchrony_window_ns": 0,
}
_SHARES = ("min_synchrony_ratio", "min_confidence")


def resolve_collective_attribution_config(
    preset: str = "medium", overrides: Mapping[str, Any] | None = None
) -> CollectiveAttributionConfig:
    """A preset with some knobs changed; ValueError for an unknown preset or knob, or a value out of range."""
    name = (preset or "medium").strip().lower()
    if name not in _PRESETS:
        known = ", ".join(sorted(_PRESETS))
        raise ValueError(f"Unknown collective attribution preset: {preset!r} (known: {known})")
    knobs = {field.name for field in dataclasses.fields(CollectiveAttributionConfig)} - {"preset"}
    unknown = sorted(key for key in overrides or () if key not in knobs)
    if unknown:
        raise ValueError("Unknown collective attribution override fields: " + ", ".join(unknown))
    config = dataclasses.replace(_PRESETS[name], **(overrides or {}))
    _check(config)
    return config


def attribute_collective_memory(
    events: Sequence[TelemetryEventLike],
    *,
    config: CollectiveAttributionConfig | None = None,
    preset: str = "medium",
    overrides: Mapping[str, Any] | None = None,
    phase_resolver: PhaseReplayIndex | None = None,
) -> list[CollectiveAttributionResult]:
    """The intervals of every rank, in the order of ranks and time."""
    if len(events) == 0:
        return []
    chosen = config or resolve_collective_attribution_config(preset, overrides)
    results = []
    buffer = untouched(events)
    source = passing(events) if buffer is None else buffer
    for interval in _native.analysis.collective_intervals(source, chosen):
        record = interval.record
        evidence = CollectiveAttributionEvidence(**record.pop("evidence"))
        record["phase_attribution"] = _phase(phase_resolver, interval.spikes, record["rank"])
        results.append(CollectiveAttributionResult(**record, evidence=evidence))
    return results


def _phase(
    index: PhaseReplayIndex | None, spikes: list[tuple[int, str | None]], rank: int
) -> PhaseAttribution | None:
    if index is None:
        return None
    merged = None
    for at_ns, session_id in spikes:
        if session_id is not None:
            found = index.resolve(timestamp_ns=at_ns, session_id=session_id, rank=rank)
            merged = merge_phase_attributions(merged, found)
    return merged


def _check(config: CollectiveAttributionConfig) -> None:
    if config.min_samples_per_rank < 3:
        raise ValueError("min_samples_per_rank must be >= 3")
    if config.robust_zscore_threshold <= 0:
        raise ValueError("robust_zscore_threshold must be > 0")
    for name, least in _LEAST.items():
        if getattr(config, name) < least:
            raise ValueError(f"{name} must be >= {least}")
    for name in _SHARES:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{name} must be in [0, 1]")
