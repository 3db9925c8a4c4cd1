"""The steps a program has ended, and what waits for one of them.

Private. Steps are those of PyTorch's optimizers, until the program reports its own (`stormlog.step`). Calls
what waits in the thread that ended the step, before its next one begins.
"""

from __future__ import annotations

from collections.abc import Callable


class StepClock:
    """Counts ended steps."""

    def __init__(self) -> None:
        self.made: int | None = None
        self._is_reported = False
        #: Called with the number of each step that ends, while something waits for one.
        self.watcher: Callable[[int], None] | None = None

    def optimizer_made(self, count: int) -> None:
        """The busiest optimizer has made `count` steps."""
        if not self._is_reported and count != self.made:
            self._notify(count)

    def report(self, number: int | None) -> None:
        """The program ended a step; without a number, the next one."""
        before = self.made if self._is_reported else None
        self._is_reported = True
        self._notify((before or 0) + 1 if number is None else int(number))

    def _notify(self, number: int) -> None:
        self.made = number
        watcher = self.watcher
        if watcher is not None:
            watcher(number)


CLOCK = StepClock()
