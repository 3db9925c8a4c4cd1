"""What a snapshot answers, as plain objects: the same fields as ``stormlog snapshot|replay|diff --json``.

Only shapes live here; every number comes from the native reports.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_KINDS: dict[type, dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Where every byte was at one moment; the parts sum to ``reserved_bytes``."""

    requested_bytes: int
    rounding_bytes: int
    split_slack_bytes: int
    pending_free_bytes: int
    stranded_bytes: int
    releasable_bytes: int
    walled_off_bytes: int
    other_stream_bytes: int
    reserved_bytes: int
    outside_bytes: int | None
    device_free_bytes: int | None
    device_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool and stream at the peak; ``verdict`` is ``tight``, ``cached`` or ``fragmented``."""

    pool: tuple[int, int]
    small: bool
    stream: int
    reserved_bytes: int
    active_bytes: int
    free_bytes: int
    largest_free_bytes: int
    stranded_bytes: int
    releasable_bytes: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its peaks, when they were, and what they were made of."""

    device: int
    events: int
    peak_allocated_bytes: int
    peak_active_bytes: int
    peak_reserved_bytes: int
    peak_allocated_event: int | None
    peak_allocated_time_us: int | None
    peak_event: int
    peak_time_us: int | None
    overflowed: bool | None
    live_before_recording_bytes: int
    anomalies: int
    decomposition_at_peak: Decomposition
    pools_at_peak: tuple[Pool, ...]
    end_reserved_bytes: int
    end_allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Holder:
    """The blocks of one stack, innermost frame first."""

    bytes: int
    count: int
    site: str | None
    frames: tuple[str, ...]
    category: str
    before_recording: bool


@dataclass(frozen=True, slots=True)
class CategoryShare:
    """The blocks of one category; ``share`` is from 0 to 1."""

    category: str
    bytes: int
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cause, as a word for programs and a sentence for people."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class LimitBounds:
    """What the recording shows about the memory there was."""

    at_least: int
    below: int | None


@dataclass(frozen=True, slots=True)
class Oom:
    """A request that failed, explained."""

    event: int
    time_us: int | None
    request_bytes: int
    segment_bytes: int
    pool: tuple[int, int]
    small: bool
    stream: int
    largest_usable_free_bytes: int
    usable_free_bytes: int
    decomposition: Decomposition
    allocated_bytes: int
    released_by_retry_bytes: int
    retries: int
    device_free_bytes: int | None
    limit: LimitBounds
    site: str | None
    cause: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Growth:
    """A place whose blocks pile up: ``count`` of ``of`` are still held."""

    bytes: int
    count: int
    of: int
    site: str | None
    frames: tuple[str, ...]
    never_freed: bool


@dataclass(frozen=True, slots=True)
class SelfMatch:
    """How many recorded addresses the model of the allocator chose as well."""

    matched: int
    total: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A setting that would have helped."""

    settings: str
    peak_reserved_bytes: int
    saves_bytes: int
    avoids_oom: bool | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about a snapshot that fits on one page.

    ``also`` is what is wrong besides the verdict, ``advice`` settings that would have helped, ``hints`` what
    to change in the program.
    """

    devices: tuple[Device, ...]
    device: int
    settings: str
    top: tuple[Holder, ...]
    categories: tuple[CategoryShare, ...]
    verdict: Verdict
    also: tuple[Verdict, ...]
    oom: Oom | None
    growth: tuple[Growth, ...]
    self_match: SelfMatch | None
    advice: tuple[Advice, ...]
    hints: tuple[str, ...]
    cautions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The peaks as recorded."""

    peak_reserved_bytes: int
    peak_allocated_bytes: int
    peak_active_bytes: int
    oom: bool


@dataclass(frozen=True, slots=True)
class Prediction:
    """What would have happened under ``settings``, a text for ``PYTORCH_CUDA_ALLOC_CONF``."""

    settings: str
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    peak_active_bytes: int
    oom: bool
    oom_event: int | None
    retries: int
    caution: str | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """The recorded requests under other settings. Mind ``warning``: it says when not to believe them."""

    device: int
    settings: str
    self_match: SelfMatch
    recorded: Recorded
    limit_bytes: int | None
    limit_seen: LimitBounds
    predictions: tuple[Prediction, ...]
    best: str | None
    warning: str | None
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """Bytes and blocks before and after."""

    before_bytes: int
    after_bytes: int
    before_count: int
    after_count: int
    delta_bytes: int
    delta_count: int


@dataclass(frozen=True, slots=True)
class StackDiff(Sides):
    """One stack that differs."""

    site: str | None
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CategoryDiff(Sides):
    """One category."""

    category: str


@dataclass(frozen=True, slots=True)
class DeviceDiff:
    """One device of both."""

    device: int
    total: Sides
    before: Decomposition
    after: Decomposition


@dataclass(frozen=True, slots=True)
class Diff:
    """Two snapshots compared, the largest change first; stacks and categories count over all devices."""

    at: str | dict[str, int | str]
    total: Sides
    before: Decomposition
    after: Decomposition
    devices: tuple[DeviceDiff, ...]
    categories: tuple[CategoryDiff, ...]
    stacks: tuple[StackDiff, ...]


def build(cls: type[_T], data: dict[str, Any]) -> _T:
    """The object a JSON object stands for; keys it does not know are left out."""
    # Every item of a list has the same shape: hints are looked up once a class.
    kinds = _KINDS.get(cls) or _KINDS.setdefault(cls, get_type_hints(cls))
    return cls(**{name: _value(kind, data[name]) for name, kind in kinds.items() if name in data})


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if is_dataclass(kind):
        return build(kind, value)  # type: ignore[arg-type]
    if get_origin(kind) in (Union, types.UnionType):
        inner = [part for part in get_args(kind) if is_dataclass(part)]
        return _value(inner[0], value) if inner else value
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], item) for item in value)
    return value
