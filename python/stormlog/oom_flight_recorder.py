"""What an exception says about memory, and the bundles that keep the events before it.

The classification and the trackers' bundles are native; the recorder here keeps whatever dictionaries it is
given and writes them as they are. A bundle appears whole or not at all, and retention never removes the one
just written.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from stormlog import _native
from stormlog._tracking.failure import chain
from stormlog.session import SessionSummary, session_summary_to_dict

__all__ = [
    "OOMExceptionClassification",
    "OOMFlightRecorder",
    "OOMFlightRecorderConfig",
    "classify_oom_exception",
]

_FILES = ["manifest.json", "events.json", "metadata.json", "environment.json"]


@dataclasses.dataclass(frozen=True)
class OOMFlightRecorderConfig:
    """Whether bundles are written, where, of how many events, and how many are kept."""

    enabled: bool = False
    dump_dir: str = "oom_dumps"
    buffer_size: int = 10_000
    max_dumps: int = 5
    max_total_mb: int = 256

    @classmethod
    def of_tracker(
        cls,
        enabled: bool,
        dump_dir: str | os.PathLike[str],
        buffer_size: int | None,
        max_dumps: int,
        max_total_mb: int,
        *,
        history: int,
    ) -> Self:
        """From the arguments of a tracker, whose `history` is the buffer's size unless one is given."""
        size = buffer_size if buffer_size is not None and buffer_size > 0 else history
        return cls(enabled, os.fspath(dump_dir), size, max_dumps, max_total_mb)


@dataclasses.dataclass(frozen=True)
class OOMExceptionClassification:
    """Whether an exception is an out-of-memory error, and the sign it was recognised by."""

    is_oom: bool
    reason: str | None


def classify_oom_exception(exc: BaseException) -> OOMExceptionClassification:
    """Whether an exception means that memory ran out, by itself or by what it was raised from."""
    found = classified(exc)
    return OOMExceptionClassification(found.is_oom, found.reason)


def classified(exc: BaseException) -> _native.oom.ExceptionVerdict:
    """Whether memory ran out, by which sign, and the cause a bundle names."""
    # The chain begins with the exception itself and stops at the first sign.
    for error in chain(exc):
        found = _native.oom.classify_exception(exception_facts(error))
        if found.is_oom:
            break
    return found


def exception_facts(exc: BaseException) -> _native.oom.ExceptionFacts:
    """What the classifier looks at. Never raises, whatever the exception's own methods do."""
    kind = type(exc)
    bases = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    # torch names the class in several places; what it calls its own counts.
    torch = sys.modules.get("torch")
    oom = getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    if isinstance(oom, type) and isinstance(exc, oom):
        bases.append("torch.cuda.OutOfMemoryError")
    number = getattr(exc, "errno", None)
    errno = number if isinstance(number, int) and -(2**31) <= number < 2**31 else None
    return _native.oom.ExceptionFacts(
        type_name=kind.__name__,
        module=kind.__module__,
        bases=bases,
        message=exception_text(exc),
        errno=errno,
    )


def exception_text(exc: BaseException) -> str:
    """`str(exc)` without secrets, as far as it can be had and written to a file."""
    try:
        text = str(exc)
    except Exception as error:
        text = f"<its text could not be had: {type(error).__name__}>"
    return _native.files.scrub_text(text.encode("utf-8", "backslashreplace").decode("utf-8"))


class OOMFlightRecorder:
    """Keeps the last events and writes them into a bundle when memory ran out."""

    def __init__(
        self,
        config: OOMFlightRecorderConfig,
        *,
        system_info_provider: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.config = config
        self._system_info = system_info_provider or _system_info
        self._events: deque[dict[str, Any]] = deque(maxlen=max(1, int(config.buffer_size)))
        self._lock = threading.Lock()
        self._sequence = 0

    def record_event(self, event: dict[str, Any]) -> None:
        """Store an event for the next bundle; the oldest is dropped when the buffer is full."""
        with self._lock:
            self._events.append(dict(event))

    def snapshot_events(self) -> list[dict[str, Any]]:
        """The events in the buffer, oldest first."""
        with self._lock:
            return [dict(event) for event in self._events]

    def clear(self) -> None:
        """Forget the events, for the next session."""
        with self._lock:
            self._events.clear()

    def dump(
        self,
        *,
        reason: str,
        exception: BaseException,
        context: str | None,
        backend: str,
        metadata: dict[str, Any] | None = None,
        session_summary: SessionSummary | None = None,
    ) -> str | None:
        """Write a bundle; its path, or None when the recorder is off."""
        if not self.config.enabled:
            return None
        root = Path(self.config.dump_dir)
        _native.files.create_directory(root)
        final = self._next_path(root, backend)
        events = self.snapshot_events()
        session = {
            "session_id": session_summary.session_id if session_summary else None,
            "session_status": session_summary.status if session_summary else None,
            "session": session_summary_to_dict(session_summary) if session_summary else None,
        }
        payloads: dict[str, Any] = {
            "events.json": events,
            "metadata.json": {
                "reason": reason,
                "exception_type": type(exception).__name__,
                "exception_module": type(exception).__module__,
                "exception_message": exception_text(exception),
                "context": context,
                "backend": backend,
                "captured_event_count": len(events),
                **session,
                "custom_metadata": dict(metadata or {}),
            },
            "environment.json": {"pid": os.getpid(), "cwd": str(Path.cwd()), "system": self._system_info()},
            "manifest.json": {
                "schema_version": 2,
                "bundle_name": final.name,
                "created_at_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "reason": reason,
                "backend": backend,
                "event_count": len(events),
                **session,
                "files": _FILES,
            },
        }
        unfinished = final.with_name(f".{final.name}.tmp")
        unfinished.mkdir(mode=0o700)
        try:
            for name, payload in payloads.items():
                descriptor = _native.files.create_file(unfinished / name)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump(payload, file, indent=2, default=str)
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _native.oom.prune_bundles(root, final, self.config.max_dumps, self.config.max_total_mb)
        return str(final)

    def _next_path(self, root: Path, backend: str) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        safe = re.sub(r"[^a-zA-Z0-9_-]+", "_", backend) or "unknown"
        while True:
            with self._lock:
                self._sequence += 1
                path = root / f"oom_dump_{stamp}_{os.getpid()}_{safe}_{self._sequence}"
            if not path.exists():
                return path


def _system_info() -> dict[str, Any]:
    from stormlog.utils import system_info_without_imports

    return system_info_without_imports()
