"""Phases as a program goes through them: one stack a thread.

The rules are native. A phase is left in the thread that entered it and after everything inside it; anything
else is a `PhaseProtocolError` and changes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from stormlog import _native

__all__ = [
    "PHASE_ENTER_EVENT",
    "PHASE_EXIT_EVENT",
    "PHASE_SCOPE_ATTRIBUTES_KEY",
    "PHASE_SCOPE_METADATA_KEY",
    "PhaseBoundary",
    "PhaseHandle",
    "PhaseProtocolError",
    "PhaseRecorder",
    "PhaseToken",
    "format_phase_path",
]

PHASE_ENTER_EVENT = "phase_enter"
PHASE_EXIT_EVENT = "phase_exit"
PHASE_SCOPE_METADATA_KEY = "phase_scope"
PHASE_SCOPE_ATTRIBUTES_KEY = "attributes"


class PhaseProtocolError(RuntimeError):
    """A phase was left out of order, in another thread, or twice."""


@dataclasses.dataclass(frozen=True)
class PhaseBoundary:
    """The beginning or the end of a phase, ready to become an event."""

    event_type: str
    context: str
    metadata: dict[str, Any]
    scope_id: str
    path: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PhaseToken:
    """What leaves a phase again."""

    scope_id: str
    session_id: str
    rank: int
    thread_id: int
    name: str


class PhaseHandle:
    """An open phase; closing it a second time does nothing."""

    def __init__(
        self, *, scope_id: str, name: str, path: tuple[str, ...], close_callback: Callable[[], Any]
    ) -> None:
        self.scope_id = scope_id
        self.name = name
        self.path = path
        self._close_callback = close_callback
        self._closed = False

    @property
    def phase_path(self) -> str:
        """The path in readable form: `train / forward`."""
        return format_phase_path(self.path)

    @property
    def closed(self) -> bool:
        """Whether the phase has been left."""
        return self._closed

    def close(self) -> Any:
        """Leave the phase."""
        if self._closed:
            return None
        result = self._close_callback()
        self._closed = True
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PhaseRecorder:
    """The open phases of one tracker."""

    def __init__(self) -> None:
        self._native = _native.tracking.Phases()

    def reset(self) -> None:
        """Forget everything, for a new session."""
        self._native.reset()

    def enter(
        self, *, session_id: str, rank: int, name: str, attrs: Mapping[str, Any] | None = None
    ) -> tuple[PhaseToken, PhaseBoundary]:
        """Enter a phase: what leaves it, and the event to emit."""
        boundary = self.enter_phase(session_id=session_id, rank=rank, name=name, metadata=attrs)
        token = PhaseToken(boundary.scope_id, session_id, rank, threading.get_ident(), name)
        return token, boundary

    def enter_phase(
        self, *, session_id: str, rank: int, name: str, metadata: Mapping[str, Any] | None = None
    ) -> PhaseBoundary:
        """Enter a phase inside whatever this thread has open."""
        thread = threading.current_thread()
        attributes = json.dumps(dict(metadata or {}), default=str)
        identity = (threading.get_ident(), thread.name or "")
        try:
            return _boundary(self._native.enter(session_id, rank, identity, str(name), attributes))
        except RuntimeError as error:
            raise PhaseProtocolError(str(error)) from None

    def exit(self, token: PhaseToken) -> PhaseBoundary:
        """Leave a phase, from the thread that calls."""
        return self.exit_phase(
            session_id=token.session_id,
            rank=token.rank,
            scope_id=token.scope_id,
            thread_id=threading.get_ident(),
        )

    def exit_phase(self, *, session_id: str, rank: int, scope_id: str, thread_id: int) -> PhaseBoundary:
        """Leave a phase, as if from that thread."""
        try:
            return _boundary(self._native.exit(session_id, rank, scope_id, thread_id))
        except RuntimeError as error:
            raise PhaseProtocolError(str(error)) from None


def format_phase_path(path: Sequence[str]) -> str:
    """The path in readable form: `train / forward`."""
    return " / ".join(part for part in path if part)


def _boundary(found: _native.tracking.Boundary) -> PhaseBoundary:
    metadata = json.loads(found.metadata)
    return PhaseBoundary(found.event_type, found.context, metadata, found.scope_id, tuple(found.path))
