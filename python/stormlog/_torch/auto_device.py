"""One device as `stormlog.auto` records it: its samples, its hidden memory, its bundles.

Private. A program that survives running out of memory may do so often: only the first bundles are written at
once, later ones at intervals, the rest is counted.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stormlog import hidden_memory
from stormlog._torch import retention
from stormlog._torch.auto_bundle import Failure, write
from stormlog._torch.auto_settings import Settings
from stormlog.device_collectors import (
    CPUDeviceCollector,
    CudaDeviceCollector,
    DeviceMemoryCollector,
    DeviceMemorySampleResult,
    detect_torch_runtime_backend,
)
from stormlog.tracker import MemoryTracker

_LOGGER = logging.getLogger("stormlog.auto")
_STEP = 2 << 20
# Bundles written at once, and the seconds between two after that.
_FIRST_BUNDLES, _PAUSE = 3, 30.0
# An exception that comes this soon after a bundle is the one the bundle is about.
_SAME = 60.0
_MAX_BUNDLES, _MAX_MEGABYTES = 5, 512
# Seconds a program that ran out waits for its bundle.
_PATIENCE = 60.0


class Device:
    """A device that is being recorded, from its making to `stop`."""

    def __init__(self, index: int, folder: Path, settings: Settings) -> None:
        self.index = index
        self.folder = folder
        self._writing = threading.Lock()
        self._written: list[float] = []
        self.skipped = 0
        self.tracker = MemoryTracker(
            sampling_interval=settings.interval,
            enable_oom_flight_recorder=settings.writes_bundles,
            oom_dump_dir=str(folder),
            oom_max_dumps=_MAX_BUNDLES,
            oom_max_total_mb=_MAX_MEGABYTES,
            collector=_collector(index),
            recording_dir=folder,
        )
        self.tracker.prediction_callbacks.append(self._foresaw)
        self.tracker.start_tracking()

    def _foresaw(self, _event: object) -> None:
        # Beside the sessions, where every reader of the run looks for it.
        retention.foresee(self.folder.parent)

    def stop(self) -> None:
        """End the session."""
        self.tracker.stop_tracking()

    def ran_out(self, wanted: int, allowed: int, free: int, is_recorded: bool) -> None:
        """PyTorch's allocator is about to raise."""
        self._write(Failure.of_allocator(self.index, wanted, allowed, free, is_recorded))

    def raised(
        self, reason: str, exception: tuple[str, str, str], stack: tuple[str, ...], is_recorded: bool
    ) -> None:
        """An exception says that memory ran out; the allocator's own has its bundle already."""
        is_known = reason == "torch.cuda.OutOfMemoryError" or exception[0] == "OutOfMemoryError"
        if is_known and self._written and time.monotonic() - self._written[-1] < _SAME:
            return
        self._write(Failure.of_exception(self.index, reason, exception, stack, is_recorded), is_last=True)

    def _write(self, failure: Failure, is_last: bool = False) -> None:
        # Another thread writes one about the same moment.
        if not self._writing.acquire(blocking=False):
            self.skipped += 1
            return
        try:
            now = time.monotonic()
            if not is_last and len(self._written) >= _FIRST_BUNDLES and now - self._written[-1] < _PAUSE:
                self.skipped += 1
                return
            if _apart(lambda: write(self.tracker, self.folder, failure, self.skipped)):
                self._written.append(time.monotonic())
        finally:
            self._writing.release()


def _apart(work: Callable[[], bool]) -> bool:
    """Do it in a thread of its own, and wait.

    Whatever keeps the frames it is called from must not keep the program's, and PyTorch's own modules do when
    they are first imported.
    """
    done: list[bool] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            _LOGGER.debug("bundle: %s", error)

    thread = threading.Thread(target=run, name="stormlog-bundle", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending, or there are no threads left
        run()
    else:
        # Not forever: the thread that waits may hold a lock that the work needs.
        thread.join(_PATIENCE)
    return bool(done and done[0])


def _collector(index: int) -> DeviceMemoryCollector:
    return CPUDeviceCollector() if index < 0 else _DriverCollector(index)


class _DriverCollector(CudaDeviceCollector):
    """The allocator's counters, the driver's own numbers, and a look at hidden memory when it moves."""

    def __init__(self, index: int) -> None:
        torch: Any = sys.modules["torch"]
        super().__init__(torch.device(f"cuda:{index}"))
        self._asked = hidden_memory.Driver(torch, index)
        self._difference = 0
        self._is_rocm = detect_torch_runtime_backend() == "rocm"
        if self._is_rocm:
            self.telemetry_collector = "stormlog.rocm_tracker"

    def name(self) -> str:
        """The name of the backend in events and bundles."""
        return "rocm" if self._is_rocm else "cuda"

    def is_available(self) -> bool:
        """It has a context, so it is there."""
        return True

    def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
        """Read the memory once, with the counters that could not be read and why."""
        result = super().sample_with_diagnostics()
        sample = result.sample
        if sample is not None and sample.used_bytes is not None and sample.reserved_bytes is not None:
            difference = sample.used_bytes - sample.reserved_bytes
            if abs(difference - self._difference) >= _STEP:
                self._difference = difference
                try:
                    hidden_memory.measure(sample.device_id)
                except Exception as error:
                    _LOGGER.debug("hidden memory: %s", error)
        return result

    def _driver(self, torch: Any) -> tuple[int, int, int]:
        used, free, total = self._asked.memory()
        if used is None or free is None or total is None:
            raise RuntimeError("the driver does not report its memory")
        return used, free, total
