"""Entering and leaving phases, the same for every tracker.

Private. The tracker says which session runs and writes the boundaries as events of its own; nothing here
keeps time or memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stormlog.phases import PhaseBoundary, PhaseHandle, PhaseRecorder, PhaseToken
from stormlog.session import SessionSummary


class Phased:
    """The phases of a tracker."""

    distributed_identity: dict[str, Any]

    def __init__(self) -> None:
        self._phases = PhaseRecorder()

    def enter_phase(self, name: str, *, metadata: dict[str, Any] | None = None) -> PhaseHandle:
        """Enter a phase; close the handle in the same thread. RuntimeError where nothing is tracked."""
        session = self._running_session()
        if session is None:
            raise RuntimeError("Tracking must be active before entering a phase.")
        token, boundary = self._phases.enter(
            session_id=session.session_id, rank=self.distributed_identity["rank"], name=name, attrs=metadata
        )
        self._add_boundary(boundary)
        return PhaseHandle(
            scope_id=boundary.scope_id,
            name=name,
            path=boundary.path,
            close_callback=lambda: self._leave_phase(token),
        )

    @contextmanager
    def phase(self, name: str, *, metadata: dict[str, Any] | None = None) -> Iterator[PhaseHandle]:
        """A phase around a block."""
        with self.enter_phase(name, metadata=metadata) as handle:
            yield handle

    def _leave_phase(self, token: PhaseToken) -> None:
        self._add_boundary(self._phases.exit(token))

    # What a tracker adds

    def _running_session(self) -> SessionSummary | None:
        """The session, while it is tracked."""
        raise NotImplementedError

    def _add_boundary(self, boundary: PhaseBoundary) -> None:
        """Write the boundary as an event."""
        raise NotImplementedError
