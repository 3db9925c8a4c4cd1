# The append-only sink of telemetry and its rollups: the submodule `stormlog._native.sink`.
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

from stormlog._native.telemetry import _SummaryFields

__all__ = [
    "Sink",
    "check_rollups",
    "check_sink_settings",
    "read_rollups",
    "read_sink_manifest",
    "rollup_session",
    "sink_manifest_path",
    "sink_rollup_path",
    "sink_segment_paths",
    "write_rollups",
]

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
