"""The emergency ladder: free memory when a tracker warns, then ask for smaller batches, then save and leave.

What can be freed without the program's help is freed when the alert comes, or at the next `step()`. The last
rungs change what the program does, so they are climbed only from `step()`, in its own thread and between two
of its steps, and only with the hooks it gave. No rung is climbed twice in a row faster than it can help.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from stormlog._tracking.base import BaseTracker
from stormlog._tracking.cleanup import InUse, Rung, climb, freeing_steps
from stormlog._tracking.event import TrackingEvent

# EX_TEMPFAIL of sysexits.h: the status that schedulers retry.
TRY_AGAIN = 75


class MemoryWatchdog:
    """Frees memory when a tracker warns, the safest step first, and records how many bytes each step freed.

    - `cleanup_threshold`: the share of the memory at which a warning calls the callbacks and empties caches.
    - `aggressive_cleanup_threshold`: the share at which it also collects garbage, clears cuBLAS's workspaces
      and resets graphs.
    - `at_step`: clean up when the program calls `step()`, instead of on the sampling thread.

    At most one cleanup is made in 30 s (`min_cleanup_interval`).
    """

    def __init__(
        self,
        tracker: BaseTracker,
        auto_cleanup: bool = True,
        cleanup_threshold: float = 0.9,
        aggressive_cleanup_threshold: float = 0.95,
        *,
        at_step: bool = False,
    ) -> None:
        self.tracker = tracker
        self.auto_cleanup = auto_cleanup
        self.cleanup_threshold = cleanup_threshold
        self.aggressive_cleanup_threshold = aggressive_cleanup_threshold
        self.at_step = at_step
        self.cleanup_count = 0
        self.last_cleanup_time = 0.0
        self.min_cleanup_interval = 30.0
        self.last_cleanup: list[Rung] = []
        self.total_bytes_won = 0
        self._callbacks: list[Callable[[], object]] = []
        self._graphs: list[weakref.ref[Any]] = []
        self._smaller_batch: Callable[[], object] | None = None
        self._checkpoint: tuple[Callable[[], object], int] | None = None
        self._due: bool | None = None  # a cleanup for the next step; whether aggressive
        self._short_since: float | None = None
        tracker._add_listener(self._handle_alert)

    # What the program offers

    def add_cleanup_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` when memory is short, for example to drop a cache or shrink a pool."""
        self._callbacks.append(callback)

    def add_graph(self, graph: Any) -> None:
        """Allow a CUDA graph to be reset, its pool released; the program captures it again. Held weakly."""
        self._graphs.append(weakref.ref(graph))

    def on_smaller_batch(self, hook: Callable[[], object]) -> None:
        """Call `hook` for a smaller batch when freeing was not enough; it returns False if there is none."""
        self._smaller_batch = hook

    def on_checkpoint(self, save: Callable[[], object], exit_code: int = TRY_AGAIN) -> None:
        """As the last resort call `save` and exit with `exit_code`, which tells a scheduler to retry."""
        self._checkpoint = (save, exit_code)

    def on_prediction(self, callback: Callable[[TrackingEvent], None]) -> None:
        """Call `callback` when a limit is forecast; the event's metadata has `seconds_to_limit`."""
        self.tracker.add_prediction_callback(callback)

    # The ladder

    def force_cleanup(self, aggressive: bool = False, exception: BaseException | None = None) -> list[Rung]:
        """Free memory now; what each step freed. Clears the frames of `exception`, which hold tensors."""
        return self._clean(aggressive, exception)

    def step(self) -> list[Rung]:
        """Call between two steps of the program: makes a due cleanup; SystemExit after a checkpoint."""
        rungs: list[Rung] = []
        if self._due is not None:
            aggressive, self._due = self._due, None
            rungs += self._clean(aggressive, None)
        elif self._short_since is not None:
            if self._highest_share(self._short_since) < self.aggressive_cleanup_threshold:
                self._short_since = None
            else:
                rungs += self._last_resorts()
        return rungs

    def get_cleanup_stats(self) -> dict[str, Any]:
        """The number of cleanups, the settings, and the bytes that the last one and all of them freed."""
        won = [rung.bytes_won for rung in self.last_cleanup if rung.bytes_won is not None]
        return {
            "cleanup_count": self.cleanup_count,
            "last_cleanup_time": self.last_cleanup_time,
            "auto_cleanup_enabled": self.auto_cleanup,
            "cleanup_threshold": self.cleanup_threshold,
            "aggressive_cleanup_threshold": self.aggressive_cleanup_threshold,
            "last_cleanup_bytes_won": sum(won) if won else None,
            "total_bytes_won": self.total_bytes_won,
        }

    def _handle_alert(self, event: TrackingEvent) -> None:
        now = time.time()
        if not self.auto_cleanup or now - self.last_cleanup_time < self.min_cleanup_interval:
            return
        usage = (event.metadata or {}).get("usage_percent") or 0.0
        is_critical = event.event_type == "critical"
        if is_critical or (event.event_type == "warning" and usage >= self.cleanup_threshold * 100):
            self.last_cleanup_time = now
            aggressive = is_critical or usage >= self.aggressive_cleanup_threshold * 100
            if self.at_step:
                self._due = aggressive
            else:
                self._clean(aggressive, None)

    def _clean(self, aggressive: bool, exception: BaseException | None) -> list[Rung]:
        self.cleanup_count += 1
        graphs = [graph for graph in (held() for held in self._graphs) if graph is not None]
        steps = freeing_steps(self.tracker.backend, aggressive, self._callbacks, graphs, exception)
        try:
            rungs = climb(steps, self._in_use)
        except Exception as error:
            self.tracker._add_event("error", 0, f"Cleanup failed: {error}")
            return []
        kind = "aggressive" if aggressive else "standard"
        self._report(rungs, f"Performed {kind} memory cleanup")
        if aggressive and self._share_now() >= self.aggressive_cleanup_threshold:
            self._short_since = time.time()
        return rungs

    def _last_resorts(self) -> list[Rung]:
        """A smaller batch while there is one; then the checkpoint, and the end."""
        if self._smaller_batch is not None:
            answer: list[object] = []
            hook = self._smaller_batch
            rungs = climb([("smaller_batch", lambda: answer.append(hook()))], self._in_use)
            if answer and answer[0] not in (None, False):
                self._short_since = time.time()
                self._report(rungs, f"Requested a smaller batch: {answer[0]}")
                return rungs
            self._report(rungs, "The batch cannot be reduced further")
        self._short_since = None
        if self._checkpoint is None:
            return []
        save, code = self._checkpoint
        rungs = climb([("checkpoint_and_exit", save)], self._in_use)
        if rungs[0].error is not None:
            # To leave now would lose the work that was to be saved.
            self._report(rungs, f"The checkpoint failed, so the program continues: {rungs[0].error}")
            return rungs
        self._report(rungs, f"Saved a checkpoint; leaving with exit code {code}")
        raise SystemExit(code)

    def _report(self, rungs: list[Rung], sentence: str) -> None:
        self.last_cleanup = rungs
        self.total_bytes_won += sum(rung.bytes_won or 0 for rung in rungs)
        self.tracker._add_event("cleanup", 0, sentence, {"cleanup": [rung._asdict() for rung in rungs]})

    def _in_use(self) -> InUse:
        sample = self.tracker._ensure().sample_now().sample
        return InUse(None, None) if sample is None else InUse(sample.used, sample.allocated)

    def _share_now(self) -> float:
        sample = self.tracker._ensure().sample_now().sample
        if sample is None:
            return 0.0
        return _share(sample.allocated, sample.used, sample.free, sample.total)

    def _highest_share(self, since: float) -> float:
        """The fullest it was since then: between two steps what a step took is free again."""
        samples = self.tracker.get_events("sample", since=since)
        shares = [
            _share(event.memory_allocated, event.device_used, event.device_free, event.device_total)
            for event in samples
        ]
        return max([self._share_now(), *shares])


def _share(allocated: int | None, used: int | None, free: int | None, total: int | None) -> float:
    """How full it is; of a host the use of all processes counts, because its memory is what runs out."""
    if not total:
        return 0.0
    by_all = None if free is None else total - free
    return max(value for value in (allocated, used, by_all, 0) if value is not None) / total
