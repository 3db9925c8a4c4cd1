"""The results a profiler keeps: the newest ones up to a limit, also by name, and totals over all of them.

Bounded: a program that profiles every step for a week must not grow by it. Safe to use from several threads.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stormlog.profiler import ProfileResult


@dataclasses.dataclass
class Sum:
    """Calls added up."""

    calls: int = 0
    seconds: float = 0.0
    allocated: int = 0
    freed: int = 0
    peak: int = 0

    def add(self, result: ProfileResult) -> None:
        """One more."""
        self.calls += 1
        self.seconds += result.execution_time
        self.allocated += result.memory_allocated
        self.freed += result.memory_freed
        self.peak = max(self.peak, result.peak_memory_usage())


class ProfileStore:
    """Results in the order they came, and the same by name."""

    def __init__(self, limit: int) -> None:
        self.results: list[ProfileResult] = []
        self.by_name: dict[str, list[ProfileResult]] = {}
        self._limit = limit
        self._total = Sum()
        self._sums: dict[str, Sum] = {}
        self._lock = threading.Lock()

    def add(self, result: ProfileResult) -> None:
        """Keep a result; the oldest goes when there are too many."""
        name = result.function_name
        with self._lock:
            self.results.append(result)
            self.by_name.setdefault(name, []).append(result)
            self._total.add(result)
            self._sums.setdefault(name, Sum()).add(result)
            while len(self.results) > self._limit:
                self._drop(self.results.pop(0).function_name)

    def sums(self) -> tuple[Sum, dict[str, Sum]]:
        """The sum of all, and of each name that still has a result."""
        with self._lock:
            copies = {name: dataclasses.replace(found) for name, found in self._sums.items()}
            return dataclasses.replace(self._total), copies

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.results.clear()
            self.by_name.clear()
            self._sums.clear()
            self._total = Sum()

    def _drop(self, name: str) -> None:
        of_name = self.by_name.get(name)
        if of_name:
            del of_name[0]
            if not of_name:
                # A name that is never seen again (`batch_3_17`) must not stay for ever.
                del self.by_name[name]
                self._sums.pop(name, None)
