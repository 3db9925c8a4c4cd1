"""Trouble that comes back: the same things under one fingerprint, which is the same in every recording.

The fingerprint is a hash of what an issue is about, with everything that varies from run to run taken out.
Its rules are native (`crates/model/src/fingerprint.rs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from stormlog import _native
from stormlog._row import Row

__all__ = [
    "ISSUE_FINGERPRINT_SCHEMA_VERSION",
    "ISSUE_STATE_IGNORED",
    "ISSUE_STATE_OPEN",
    "ISSUE_STATE_REGRESSED",
    "ISSUE_STATE_RESOLVED",
    "IssueEvidenceLink",
    "IssueFingerprint",
    "IssueKind",
    "IssueState",
    "StormlogIssue",
    "categorize_alert_context",
    "freeze_dimensions",
    "json_safe_dimensions",
    "normalize_dimensions",
    "normalize_issue_state",
    "normalize_text_dimension",
    "normalized_error_stem",
]

IssueKind = Literal["oom", "collector_degradation", "alert", "hidden_memory_anomaly"]
IssueState = Literal["open", "resolved", "ignored", "regressed"]

ISSUE_FINGERPRINT_SCHEMA_VERSION = 1
ISSUE_STATE_OPEN: IssueState = "open"
ISSUE_STATE_RESOLVED: IssueState = "resolved"
ISSUE_STATE_IGNORED: IssueState = "ignored"
ISSUE_STATE_REGRESSED: IssueState = "regressed"


@dataclass(frozen=True)
class IssueFingerprint:
    """What an issue is about, without what varies."""

    kind: IssueKind
    dimensions: Mapping[str, Any]
    schema_version: int = ISSUE_FINGERPRINT_SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.kind not in get_args(IssueKind):
            raise ValueError(f"unsupported issue kind: {self.kind}")
        if self.schema_version < 1:
            raise ValueError("schema_version must be >= 1")
        object.__setattr__(self, "dimensions", freeze_dimensions(normalize_dimensions(self.dimensions)))

    @property
    def fingerprint_id(self) -> str:
        """The hash that names the issue."""
        return _native.issues.fingerprint_id(self.schema_version, self.kind, self.dimensions)

    def as_dict(self) -> dict[str, Any]:
        """The fingerprint as a dictionary for JSON."""
        return {**self._payload(), "fingerprint_id": self.fingerprint_id}

    def _payload(self) -> dict[str, Any]:
        return {
            "schema_version": self.schema_version,
            "kind": self.kind,
            "dimensions": json_safe_dimensions(self.dimensions),
        }


@dataclass(frozen=True)
class IssueEvidenceLink(Row):
    """Where an issue was seen: an event, or a bundle."""

    session_id: str | None = None
    timestamp_ns: int | None = None
    rank: int | None = None
    source_path: str | None = None
    source_kind: str | None = None
    event_type: str | None = None
    bundle_path: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))


@dataclass(frozen=True)
class StormlogIssue(Row):
    """One kind of trouble with every place it was seen."""

    fingerprint: IssueFingerprint
    title: str
    severity: str
    hit_count: int
    first_seen_ns: int | None
    last_seen_ns: int | None
    affected_sessions: Sequence[str]
    representative_evidence: IssueEvidenceLink
    evidence: Sequence[IssueEvidenceLink]
    state: IssueState = ISSUE_STATE_OPEN
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", normalize_issue_state(self.state))
        if self.hit_count < 1:
            raise ValueError("hit_count must be >= 1")
        sessions = tuple(sorted({session for session in self.affected_sessions if session}))
        object.__setattr__(self, "affected_sessions", sessions)
        object.__setattr__(self, "evidence", tuple(self.evidence))
        object.__setattr__(self, "details", dict(self.details))

    @property
    def fingerprint_id(self) -> str:
        """The hash that names the issue."""
        return self.fingerprint.fingerprint_id

    @property
    def kind(self) -> IssueKind:
        """What kind of trouble it is."""
        return self.fingerprint.kind

    def as_dict(self) -> dict[str, Any]:
        """The issue as a dictionary for JSON."""
        fingerprint = self.fingerprint.as_dict()
        return {
            **super().as_dict(),
            "fingerprint_id": fingerprint["fingerprint_id"],
            "fingerprint": fingerprint,
            "kind": self.kind,
        }


def normalize_issue_state(state: str) -> IssueState:
    """The state of this name; ValueError for an unknown name."""
    return cast(IssueState, _native.issues.issue_state(state))


def normalize_text_dimension(value: object, *, default: str = "unknown") -> str:
    """A text with what varies taken out: lower case, addresses `<hex>`, numbers `<num>`, single blanks."""
    return default if value is None else _native.issues.normalize_text(str(value), default)


def normalized_error_stem(error: object) -> str:
    """The beginning of an error's text, up to its first colon or line end."""
    return _native.issues.error_stem("" if error is None else str(error))


def categorize_alert_context(context: object) -> str:
    """What an alert is about, by its sentence."""
    return _native.issues.alert_category("" if context is None else str(context))


def normalize_dimensions(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """Dimensions with what varies taken out, in the order of their names."""
    return _native.issues.normalize_dimensions(dimensions)


def freeze_dimensions(dimensions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same dimensions, unchangeable all the way down."""
    return MappingProxyType({key: _frozen(dimensions[key]) for key in sorted(dimensions)})


def json_safe_dimensions(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """The same dimensions as dictionaries and lists."""
    return {key: _thawed(dimensions[key]) for key in sorted(dimensions)}


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return freeze_dimensions(value)
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json_safe_dimensions(value)
    return [_thawed(item) for item in value] if isinstance(value, tuple) else value
