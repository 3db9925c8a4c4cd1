"""One reading of a collector written in Python, checked against what the collector can know. Private."""

from __future__ import annotations

from stormlog import _native
from stormlog.device_collectors import (
    DeviceMemoryCapabilities,
    DeviceMemoryCollector,
    validate_device_memory_sample,
)


def reading_of(
    collector: DeviceMemoryCollector, capabilities: DeviceMemoryCapabilities
) -> _native.tracking.Reading:
    """A reading for the native tracker; without a sample, the reason."""
    result = collector.sample_with_diagnostics()
    sample = result.sample
    reasons = "; ".join(dict.fromkeys(result.errors.values()))
    if sample is None:
        error_text = result.core_error or reasons or "Collector unavailable"
        return _native.tracking.Reading(None, error=error_text)
    try:
        validate_device_memory_sample(sample, capabilities, partial_fields=result.partial_fields)
    except ValueError as error:
        return _native.tracking.Reading(None, error=str(error))
    numbers = _native.tracking.Sample(
        sample.device_id,
        allocated=sample.allocated_bytes,
        reserved=sample.reserved_bytes,
        used=sample.used_bytes,
        free=sample.free_bytes,
        total=sample.total_bytes,
        active=sample.active_bytes,
        inactive=sample.inactive_bytes,
    )
    return _native.tracking.Reading(
        numbers, partial_fields=result.partial_fields, error=reasons or None, facts=result.facts
    )
