# The extension module, built from crates/python. `python -m mypy.stubtest stormlog._native` checks this file.

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, final

__all__ = [
    "CudaDriverEvents",
    "EventBuffer",
    "Gpu",
    "HeapError",
    "Phases",
    "ProcessProbe",
    "Recorder",
    "Sink",
    "TorchSnapshot",
    "Tracker",
    "__version__",
    "allocator_availability",
    "are_in_order",
    "binary_size",
    "check_rollups",
    "check_sink_settings",
    "classify_exception",
    "collective_intervals",
    "counter_peaks",
    "create_directory",
    "create_file",
    "derive_event",
    "derive_session",
    "draw_figure",
    "duration_in_words",
    "escape_markup",
    "event_from_record",
    "event_groups",
    "find_sources",
    "first_events",
    "heap_flamegraph",
    "heap_recording",
    "heap_stacks",
    "heap_start",
    "heap_stats",
    "heap_stop",
    "hidden_gaps",
    "host_memory",
    "inert_text",
    "is_session_dead",
    "judge_calls",
    "legacy_session_id",
    "likely_events",
    "load_sessions",
    "load_torch_snapshot",
    "memory_feature_enabled",
    "memory_gaps",
    "new_session_id",
    "normalize_session_status",
    "parse_size",
    "prune_bundles",
    "rank_summary",
    "rank_timeline",
    "read_rollups",
    "read_sink_manifest",
    "release_interrupts",
    "replace_file",
    "resolve_distributed_identity",
    "rollup_session",
    "run_cli",
    "scrub_text",
    "session_summary_from_record",
    "sink_manifest_path",
    "sink_rollup_path",
    "sink_segment_paths",
    "validate_record",
    "write_rollups",
]

__version__: str

# The fields of a TelemetryEventV4 in its order.
_EventFields: TypeAlias = tuple[
    Literal[4],
    str,
    int,
    str,
    str,
    int,
    int,
    str,
    int,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    str | None,
    str | None,
    int,
    int,
    int,
    dict[str, Any],
]
# The fields of a SessionSummary in its order.
_SummaryFields: TypeAlias = tuple[str, str, int, int | None, str, int, str | None, int, int, int, str]

# The fields of a TelemetrySinkConfig in its order.
_SinkSettings: TypeAlias = tuple[
    str | os.PathLike[str],
    int,
    float,
    int,
    int,
    int,
    int,
    bool,
    int,
    int | None,
    float,
    float,
]

@final
class EventBuffer:
    def __len__(self) -> int: ...
    def fields(self, index: int) -> _EventFields: ...

@final
class Sink:
    def __new__(cls, settings: _SinkSettings, host: str) -> Sink: ...
    def start_session(self, summary: _SummaryFields | None) -> _SummaryFields: ...
    def current_session(self) -> _SummaryFields | None: ...
    def append(self, line: str, session_id: object) -> bool: ...
    def flush(self, force: bool) -> None: ...
    def close(self, session_status: str) -> None: ...
    def diagnostics(self) -> dict[str, int]: ...
    def failure_diagnostics(self) -> dict[str, Any]: ...
    def take_warnings(self) -> list[str]: ...

def validate_record(record: Mapping[str, Any]) -> None: ...
def event_from_record(
    record: Mapping[str, Any],
    permissive_legacy: bool,
    default_collector: str,
    default_sampling_interval_ms: object,
    default_session_id: str | None,
) -> _EventFields: ...
def resolve_distributed_identity(
    job_id: object,
    rank: object,
    local_rank: object,
    world_size: object,
    metadata: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
) -> tuple[str | None, int, int, int]: ...
def load_sessions(
    path: str | os.PathLike[str], permissive_legacy: bool, events_key: str | None
) -> list[tuple[_SummaryFields, EventBuffer, list[str], list[str]]]: ...
def new_session_id() -> str: ...
def legacy_session_id(parts: Sequence[str]) -> str: ...
def normalize_session_status(value: object) -> str: ...
def session_summary_from_record(payload: Mapping[str, Any]) -> _SummaryFields: ...
def derive_event(event: object) -> tuple[int | None, float | None, float | None, float | None, bool]: ...
def derive_session(events: Iterable[object]) -> tuple[float | None, float | None]: ...
def memory_feature_enabled(event: object, feature: str) -> bool: ...
def run_cli(program: str, args: Sequence[str]) -> int: ...
def release_interrupts() -> None: ...

# Kind and path of everything with telemetry at a path.
def likely_events(
    buffer: EventBuffer,
    types: Sequence[str] | None,
    said: Sequence[tuple[str, Sequence[str] | None]],
    rank: int | None,
    time_ns: tuple[int | None, int | None],
) -> list[int]: ...
def first_events(buffer: EventBuffer) -> list[int]: ...
def are_in_order(buffer: EventBuffer) -> bool: ...
def counter_peaks(buffer: EventBuffer, counter: str) -> list[tuple[str, int, int, int]]: ...
def hidden_gaps(buffer: EventBuffer) -> list[tuple[str, int, int, int, int, int, int, int]]: ...
def find_sources(path: str | os.PathLike[str]) -> tuple[list[tuple[str, Path]], list[str]]: ...
def is_session_dead(path: str | os.PathLike[str], pid: int, host: str, started_at_ns: int) -> bool: ...
def check_sink_settings(settings: _SinkSettings) -> None: ...
def read_sink_manifest(
    path: str | os.PathLike[str],
) -> tuple[int, str, list[_SummaryFields], list[tuple[str, int, int, bool, str | None]]] | None: ...
def sink_manifest_path(path: str | os.PathLike[str]) -> Path | None: ...
def sink_segment_paths(path: str | os.PathLike[str]) -> list[Path]: ...
def sink_rollup_path(path: str | os.PathLike[str]) -> Path: ...
def read_rollups(path: str | os.PathLike[str]) -> str | None: ...
def check_rollups(text: str) -> str: ...
def write_rollups(path: str | os.PathLike[str], text: str) -> Path: ...
def rollup_session(
    started_at_ns: int,
    ended_at_ns: int | None,
    events: Iterable[object],
    sources: Sequence[str],
    warnings: Sequence[str],
    window_ns: int,
) -> str: ...

@final
class Recorder:
    def __new__(
        cls, directory: str | os.PathLike[str], summary: str, ring_slots: int, keep_log: bool
    ) -> Self: ...
    def append(self, record: str) -> bool: ...
    def loss(self) -> tuple[int, int, str | None]: ...
    def close(self, status: str, ended_at_ns: int) -> None: ...

# Event type, sentence, metadata as JSON, scope id, path.
_Boundary: TypeAlias = tuple[str, str, str, str, list[str]]
# Allocated, reserved, used, free, total, active, inactive, device.
_SampleFields: TypeAlias = tuple[
    int | None, int | None, int | None, int | None, int | None, int | None, int | None, int
]
# RSS at the start, the mark before, whether the mark was reset.
_Window: TypeAlias = tuple[int, int | None, bool]

@final
class Phases:
    def __new__(cls) -> Self: ...
    def reset(self) -> None: ...
    def enter(
        self, session_id: str, rank: int, thread: tuple[int, str], name: str, attributes: str
    ) -> _Boundary: ...
    def exit(self, session_id: str, rank: int, scope_id: str, thread_id: int) -> _Boundary: ...

@final
class ProcessProbe:
    def __new__(cls) -> Self: ...
    def memory(self) -> tuple[int, int]: ...
    def peak_rss(self) -> int | None: ...
    def begin_peak(self) -> _Window: ...
    def end_peak(self, window: _Window) -> tuple[int, int | None]: ...

def host_memory() -> tuple[int | None, int | None]: ...

@final
class Gpu:
    @staticmethod
    def find(uuid: str) -> Gpu | None: ...
    # Used, free, total, kept by the driver.
    def memory(self) -> tuple[int | None, int | None, int | None, int | None] | None: ...
    def processes(self) -> list[tuple[int, int | None]] | None: ...

@final
class CudaDriverEvents:
    def __new__(cls, library: str) -> CudaDriverEvents: ...
    def stop(self) -> None: ...
    @property
    def is_on(self) -> bool: ...
    # Rows of device, library, bytes and pieces held; then allocations, frees, lost, modules and their bytes.
    def report(self) -> tuple[list[tuple[int, str, int, int]], tuple[int, int, int, int, int]]: ...

def classify_exception(
    facts: tuple[str, str, Sequence[str], str, int | None],
) -> tuple[bool, str | None, str | None]: ...
def replace_file(path: str | os.PathLike[str], content: bytes) -> None: ...
def create_file(path: str | os.PathLike[str]) -> int: ...
def create_directory(path: str | os.PathLike[str]) -> None: ...
def scrub_text(text: str) -> str: ...
def prune_bundles(
    root: str | os.PathLike[str], keep: str | os.PathLike[str], max_dumps: int, max_total_mb: int
) -> list[Path]: ...

@final
class Tracker:
    def __new__(
        cls,
        settings: str,
        sink: object | None,
        recording_dir: str | os.PathLike[str] | None,
        collector: Callable[[], object] | None,
        on_alert: Callable[[tuple[Any, ...]], object] | None,
    ) -> Self: ...
    def start(self) -> None: ...
    def stop(self, longest: float) -> bool: ...
    def is_running(self) -> bool: ...
    def add_event(
        self,
        event_type: str,
        change: int | None,
        context: str | None,
        metadata: str | None,
        sample: _SampleFields | None,
    ) -> None: ...
    # The fields of a TrackingEvent in its order.
    def events(
        self, event_types: Sequence[str] | None, last: int | None, since: float | None
    ) -> list[tuple[Any, ...]]: ...
    def count_since(self, since: float) -> int: ...
    def timeline(self, interval: float) -> tuple[list[float], list[list[int | None]]]: ...
    def statistics(self) -> dict[str, Any]: ...
    def sample_now(self) -> tuple[_SampleFields | None, list[str], str | None]: ...
    def set_threshold(self, name: str, value: float) -> None: ...
    def clear(self) -> None: ...
    def session(self) -> _SummaryFields | None: ...
    def take_warnings(self) -> list[str]: ...
    def export(self, path: str | os.PathLike[str], format: str) -> bool: ...
    def dump(self, given: Mapping[str, Any]) -> Path | None: ...

@final
class TorchSnapshot:
    def device_count(self) -> int: ...
    def event_count(self, device: int) -> int: ...
    # Each answer is a JSON text; a size is bytes or a text such as "24GiB".
    def report(self, top: int, device_total: int | str | None, advise: bool) -> str: ...
    def replay(self, settings: Sequence[str], limit: int | str | None, search: bool, device: int) -> str: ...
    def diff(self, after: TorchSnapshot, at: str, device: int | None) -> str: ...

def load_torch_snapshot(path: str | os.PathLike[str]) -> TorchSnapshot: ...

# A figure as JSON (see `_figure.py`), drawn as `png`, `svg` or `html`; the scale is for PNG.
def draw_figure(figure: str, form: str, scale: float) -> bytes: ...

# Ratio, spike z-score, drift R², fragmentation. Each gap: classification, severity, confidence, evidence as
# JSON, description, advice, and the position of the event that shows it.
def memory_gaps(
    events: Iterable[Any] | EventBuffer, thresholds: tuple[float, float, float, float]
) -> list[tuple[str, str, float, str, str, list[str], int]]: ...

# The knobs of a CollectiveAttributionConfig in their order, without the preset's name. Each interval: the
# record as JSON, and when its spikes were, with their session.
def collective_intervals(
    events: Iterable[Any] | EventBuffer, settings: tuple[Any, ...]
) -> list[tuple[str, list[tuple[int, str | None]]]]: ...

# The same without points, of a whole buffer; and the job, what was left out, the session of each suspect.
def rank_summary(
    buffer: EventBuffer,
) -> tuple[tuple[str, int, list[tuple[int, int]]], str | None, list[str], list[str | None]]: ...

# Session, rank and last moment of every group of events; where the boundaries of phases are.
def event_groups(buffer: EventBuffer) -> tuple[list[tuple[str, int, int]], list[int]]: ...

# Whether any sample has the allocator's counters, and whether any of those can tell fragmentation.
def allocator_availability(buffer: EventBuffer) -> tuple[bool, bool]: ...

# The record as JSON, how many of its notes belong to the merge, and the samples in aligned order: position
# and aligned time.
def rank_timeline(
    events: Iterable[Any],
    job_id: str | None,
    declared_world_size: int,
    stated_ns: int,
    notes: Sequence[str],
) -> tuple[str, int, list[tuple[int, int]]]: ...

# Calls: function, seconds, start, allocated, change, peak, before, after, inactive, reserved. Two JSON lists:
# patterns and insights.
def judge_calls(
    calls: Sequence[tuple[str, float, float, int, int, int, int, int, int, int]],
    thresholds: tuple[float, float, float, float, float, float],
) -> tuple[str, str]: ...

class HeapError(RuntimeError): ...

# Mean bytes between samples (0: all), keep an aggregate only, bytes above which old records are folded.
def heap_start(
    path: str | os.PathLike[str],
    overwrite: bool,
    native: bool,
    python_allocators: bool,
    sample_bytes: int,
    aggregate: bool,
    max_size: int | None,
) -> None: ...
def heap_stop() -> Path: ...
def heap_recording() -> bool: ...

# JSON texts; mode is `peak`, `leaks` or `temporary`.
def heap_stats(path: str | os.PathLike[str]) -> str: ...
def heap_stacks(path: str | os.PathLike[str], mode: str) -> str: ...
def heap_flamegraph(path: str | os.PathLike[str], mode: str, inverted: bool) -> str: ...
def parse_size(text: str) -> int | None: ...
# Text for people: markup that stays text, one line that cannot command a terminal, `1.25 GiB`, `41 min 12 s`.
def escape_markup(text: str) -> str: ...
def inert_text(text: str) -> str: ...
def binary_size(bytes: int) -> str: ...
def duration_in_words(seconds: float) -> str: ...
