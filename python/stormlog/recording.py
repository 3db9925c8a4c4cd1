"""Recordings that survive the death of the program: events go straight into memory-mapped files.

    with stormlog.recording.Recorder("run") as recorder:
        recorder.start(interval=0.05)   # samples this process's memory in the background
        train()

Whatever then ends the process, `stormlog sessions run` reads every event that had been recorded.
Samples are made by the engine of `stormlog run`. Nothing here raises into the program because of a full disk
or a deleted file: such losses are counted (`loss`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from stormlog import _native
from stormlog.session import SessionSummary, create_session_summary, now_ns

__all__ = ["Loss", "Recorder"]


class Loss(NamedTuple):
    """What could not be recorded: a full disk, a truncated or deleted file."""

    records: int
    bytes: int
    reason: str | None


class Recorder:
    """A session recorded into `directory`: a ring of the last events, and with `keep_log` all of them."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        session: SessionSummary | None = None,
        keep_log: bool = True,
        ring_slots: int = 16384,
    ) -> None:
        self.directory = Path(directory)
        self.session = session or create_session_summary(source="stormlog.recording")
        self._interval = 0.0
        self._closed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._native = _native.telemetry.Recorder(os.fspath(directory), self.session, ring_slots, keep_log)
        self.sample("start")

    def append(self, record: Mapping[str, Any]) -> bool:
        """Record a telemetry event of any schema version; False if it was dropped (see `loss`)."""
        return self._native.append(record)

    def sample(self, event_type: str = "sample", context: str | None = None) -> bool:
        """Record this process's resident memory now."""
        return self._native.sample(event_type, context, self._interval)

    def start(self, interval: float = 0.1) -> None:
        """Sample resident memory in a background thread every `interval` seconds, the first time at once."""
        if interval <= 0:
            raise ValueError("interval must be > 0")
        if self._thread is not None:
            raise RuntimeError("sampling has started already")
        self._interval = interval
        self._thread = threading.Thread(
            target=self._run, args=(interval,), name="stormlog-recorder", daemon=True
        )
        self._thread.start()

    def loss(self) -> Loss:
        """The records and bytes that were dropped so far, and why."""
        return Loss(*self._native.loss())

    def close(self, status: str = "completed") -> None:
        """End the session with this status; a second call does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if not self._closed:
            self._closed = True
            self.sample("stop")
            self._native.close(status, now_ns())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, interval: float) -> None:
        self.sample()
        while not self._stop.wait(interval):
            self.sample()
