"""The profiler of this process: the peak inside a call is the true one."""

from __future__ import annotations

import threading
import time

import pytest
from stormlog import CPUMemoryProfiler, _native
from stormlog._tracking import peak as _peak
from stormlog.utils import MemoryContext

MB = 1 << 20


def transient(size: int = 64 * MB) -> int:
    block = bytearray(size)
    for at in range(0, size, 4096):
        block[at] = 1
    return len(block)


def test_the_peak_inside_a_call_is_seen() -> None:
    profiler = CPUMemoryProfiler()
    result = profiler.profile_function(transient)
    assert result.name == "transient" and result.duration > 0
    assert result.peak_rss >= result.snapshot_before.rss + 55 * MB
    assert abs(result.memory_diff()) < 30 * MB
    # The next call does not inherit it.
    assert profiler.profile_function(lambda: None).peak_rss < result.peak_rss - 30 * MB
    assert profiler.get_summary()["peak_memory_usage"] == result.peak_rss
    assert set(result.to_dict()) == {"name", "duration", "memory_diff", "peak_rss", "before", "after"}


def test_calls_inside_calls_do_not_hide_peaks() -> None:
    profiler = CPUMemoryProfiler()
    with profiler.profile_context("outer") as outer:
        transient()
        with profiler.profile_context("inner") as inner:
            pass
    assert outer.result is not None and inner.result is not None
    assert outer.result.peak_rss > inner.result.peak_rss + 30 * MB
    with profiler.profile_context("outer") as outer, profiler.profile_context("inner") as inner:
        transient()
    assert outer.result is not None and inner.result is not None
    assert outer.result.peak_rss >= inner.result.peak_rss > inner.result.snapshot_before.rss + 30 * MB


class NoResetStandIn:
    """A probe of a kernel that does not let the mark be reset."""

    def __init__(self) -> None:
        self._probe = _native.tracking.ProcessProbe()

    def peak_rss(self) -> int | None:
        return self._probe.peak_rss()

    def begin_peak(self) -> tuple[int, int | None, bool]:
        rss, mark, _ = self._probe.begin_peak()
        return rss, mark, False


def test_without_a_reset_the_peak_is_sampled() -> None:
    before, _ = _native.tracking.ProcessProbe().memory()
    peak = _peak.PeakOfCall(NoResetStandIn())  # type: ignore[arg-type]
    block = bytearray(64 * MB)
    block[::4096] = b"x" * len(block[::4096])
    time.sleep(0.1)
    del block
    found = peak.end()
    assert found is not None and found >= before + 40 * MB


def test_block_that_raises_is_recorded_and_raises() -> None:
    profiler = CPUMemoryProfiler()
    with pytest.raises(KeyError), profiler.profile_context("bad"):
        raise KeyError("x")
    assert [result.name for result in profiler.results] == ["bad"]
    profiler.clear_results()
    assert profiler.results == [] and profiler.get_summary()["snapshots_collected"] == 0


def test_monitoring_takes_snapshots() -> None:
    with CPUMemoryProfiler() as profiler:
        with pytest.raises(ValueError, match="interval must be > 0"):
            profiler.start_monitoring(0)
        profiler.start_monitoring(0.005)
        profiler.start_monitoring(0.005)
        time.sleep(0.1)
    count = len(profiler.snapshots)
    assert count >= 3
    time.sleep(0.03)
    assert len(profiler.snapshots) == count
    snapshot = profiler.snapshots[-1]
    assert snapshot.rss > MB and snapshot.vms >= snapshot.rss and snapshot.cpu_percent >= 0
    assert set(profiler.get_summary()) == {
        "mode",
        "snapshots_collected",
        "peak_memory_usage",
        "memory_change_from_baseline",
        "baseline_rss",
    }


def test_threads_share_one_mark() -> None:
    profiler = CPUMemoryProfiler()
    peaks: list[int] = []

    def work() -> None:
        peaks.append(profiler.profile_function(transient, 16 * MB).peak_rss)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(peaks) == 4 and all(peak >= 16 * MB for peak in peaks)


def test_memory_context_works_without_a_gpu() -> None:
    with MemoryContext("block") as context:
        transient()
    summary = context.get_summary()
    assert summary["name"] == "block" and summary["peak_memory_usage"] >= 50 * MB
    assert MemoryContext().get_summary() == {"error": "Context not properly initialized"}
