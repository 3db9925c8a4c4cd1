# What an event counts as, and fingerprints of issues: the submodule `stormlog._native.issues`.
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ALERT_EVENT_TYPES",
    "COLLECTOR_DEGRADED_STATUSES",
    "COLLECTOR_TRANSITION_TYPES",
    "OOM_MARKS",
    "alert_category",
    "error_stem",
    "fingerprint_id",
    "is_alert",
    "is_collector_degradation",
    "is_oom",
    "issue_state",
    "normalize_dimensions",
    "normalize_text",
    "severity_of",
]

ALERT_EVENT_TYPES: list[str]
COLLECTOR_DEGRADED_STATUSES: list[str]
COLLECTOR_TRANSITION_TYPES: list[str]
OOM_MARKS: list[str]

def normalize_text(text: str, default: str) -> str: ...
def error_stem(error: str) -> str: ...
def alert_category(context: str) -> str: ...
def issue_state(word: str) -> str: ...
def normalize_dimensions(dimensions: Mapping[str, Any]) -> dict[str, Any]: ...
def fingerprint_id(schema_version: int, kind: str, dimensions: Mapping[str, Any]) -> str: ...
def is_alert(event_type: str, severity: str | None) -> bool: ...
def severity_of(event_type: str, severity: str | None) -> str: ...
def is_oom(event_type: str, has_oom_mark: bool) -> bool: ...
def is_collector_degradation(event_type: str, health: str | None) -> bool: ...
