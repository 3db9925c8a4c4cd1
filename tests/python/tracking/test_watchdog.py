"""The emergency ladder: every rung, what it won, and that the last ones are climbed only between steps."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cuda_stand_in
import pytest
from scripted_collector import ScriptedCollector, until
from stormlog import MemoryTracker, MemoryWatchdog, TrackingEvent

MB = 1 << 20


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = cuda_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


class Graph:
    """A `torch.cuda.CUDAGraph` with a pool."""

    def __init__(self, allocator: cuda_stand_in.Allocator, size: int) -> None:
        self.allocator, self.size = allocator, size
        allocator.take(size)

    def reset(self) -> None:
        self.allocator.give(self.size)


def test_each_rung_says_what_it_won(torch: Any) -> None:
    device = torch.allocators[0]
    device.take(100 * MB)
    graph = Graph(device, 8 * MB)
    workspace = cuda_stand_in.Tensor(device, 4 * MB)
    torch._C._cuda_clearCublasWorkspaces = workspace.free
    cache = [cuda_stand_in.Tensor(device, 16 * MB)]
    forgotten = cuda_stand_in.Tensor(device, 2 * MB)
    forgotten.free()
    watchdog = MemoryWatchdog(MemoryTracker(0, sampling_interval=10))
    watchdog.add_cleanup_callback(lambda: cache.pop().free())
    watchdog.add_graph(graph)
    rungs = {rung.name: rung for rung in watchdog.force_cleanup(aggressive=True)}
    assert list(rungs) == [
        "drop_exception_frames",
        "gc_collect",
        "callback_<lambda>",
        "synchronize",
        "empty_cache",
        "clear_cublas_workspaces",
        "release_graph_pools",
        "malloc_trim",
    ]
    # Inside the allocator first; the device gets it back with the cache.
    assert rungs["callback_<lambda>"][1:] == (0, None, 16 * MB)
    assert rungs["empty_cache"][1:] == (18 * MB, None, 0)
    assert rungs["clear_cublas_workspaces"][1:] == (4 * MB, None, 4 * MB)
    assert rungs["release_graph_pools"][1:] == (8 * MB, None, 8 * MB)
    assert watchdog.get_cleanup_stats()["total_bytes_won"] == 30 * MB
    event = watchdog.tracker.get_events("cleanup")[0]
    assert event.metadata is not None
    assert event.metadata["cleanup"][4] == rungs["empty_cache"]._asdict()
    del graph
    names = [rung.name for rung in watchdog.force_cleanup(aggressive=True) if rung.error is None]
    assert "release_graph_pools" not in names, "a graph that is gone has no pool"


def test_a_rung_that_fails_half_way_gives_back_what_it_freed(torch: Any) -> None:
    device = torch.allocators[0]

    class Broken(Graph):
        def reset(self) -> None:
            raise RuntimeError("in use")

    good, bad = Graph(device, 8 * MB), Broken(device, MB)
    watchdog = MemoryWatchdog(MemoryTracker(0, sampling_interval=10))
    watchdog.add_graph(good)
    watchdog.add_graph(bad)
    rungs = {rung.name: rung for rung in watchdog.force_cleanup(aggressive=True)}
    assert rungs["release_graph_pools"][1:] == (8 * MB, "RuntimeError: in use", 8 * MB)
    assert rungs["malloc_trim"].error is None


def test_the_frames_of_a_caught_exception_are_dropped() -> None:
    released = threading.Event()

    class Big:
        def __del__(self) -> None:
            released.set()

    def run_out() -> None:
        tensor = Big()
        assert tensor
        raise MemoryError("CUDA out of memory")

    watchdog = MemoryWatchdog(MemoryTracker("cpu", sampling_interval=10), auto_cleanup=False)
    with pytest.raises(MemoryError) as caught:
        run_out()
    assert not released.is_set()
    rungs = watchdog.force_cleanup(exception=caught.value)
    assert released.is_set() and rungs[0].name == "drop_exception_frames"


def pressed(script: list[int], **options: Any) -> tuple[MemoryTracker, MemoryWatchdog]:
    tracker = MemoryTracker(collector=ScriptedCollector(100, 100, *script), sampling_interval=0.002)
    return tracker, MemoryWatchdog(tracker, **options)


def climbed(watchdog: MemoryWatchdog, name: str) -> bool:
    return any(rung.name == name for rung in watchdog.last_cleanup)


def climb_until(watchdog: MemoryWatchdog, condition: Callable[[], bool]) -> None:
    for _ in range(500):
        watchdog.step()
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it did not happen")


def test_a_cleanup_can_wait_for_the_step() -> None:
    tracker, watchdog = pressed([980], at_step=True)
    threads: list[str] = []
    watchdog.add_cleanup_callback(lambda: threads.append(threading.current_thread().name))
    with tracker:
        until(lambda: bool(tracker.get_events("critical")))
        time.sleep(0.02)
        assert watchdog.cleanup_count == 0 and threads == []
        climb_until(watchdog, lambda: watchdog.cleanup_count == 1)
    assert threads == ["MainThread"]


def test_batches_are_made_smaller_before_the_program_leaves() -> None:
    tracker, watchdog = pressed([980])
    sizes, saved = [64], []

    def smaller() -> int | bool:
        if sizes[-1] == 16:
            return False
        sizes.append(sizes[-1] // 2)
        return sizes[-1]

    watchdog.on_smaller_batch(smaller)
    watchdog.on_checkpoint(lambda: saved.append("checkpoint"))
    with tracker:
        until(lambda: watchdog.cleanup_count == 1)
        with pytest.raises(SystemExit) as left:
            climb_until(watchdog, lambda: False)
    assert sizes == [64, 32, 16] and saved == ["checkpoint"] and left.value.code == 75
    sentences = [event.context for event in tracker.get_events("cleanup")]
    assert sentences == [
        "Performed aggressive memory cleanup",
        "Requested a smaller batch: 32",
        "Requested a smaller batch: 16",
        "The batch cannot be reduced further",
        "Saved a checkpoint; leaving with exit code 75",
    ]


def test_a_smaller_batch_that_helps_is_enough() -> None:
    tracker, watchdog = pressed([980])
    collector: Any = tracker.collector

    def smaller() -> int:
        collector.script[:] = [300]
        return 32

    watchdog.on_smaller_batch(smaller)
    watchdog.on_checkpoint(lambda: pytest.fail("there was no need"))
    with tracker:
        until(lambda: watchdog.cleanup_count == 1)
        climb_until(watchdog, lambda: climbed(watchdog, "smaller_batch"))
        climb_until(watchdog, lambda: watchdog._short_since is None)
        assert watchdog.step() == []
    assert watchdog.get_cleanup_stats()["last_cleanup_bytes_won"] == 680


def test_failed_checkpoint_does_not_end_the_program() -> None:
    tracker, watchdog = pressed([980])

    def save() -> None:
        raise OSError("disk full")

    watchdog.on_checkpoint(save, exit_code=3)
    with tracker:
        until(lambda: watchdog.cleanup_count == 1)
        climb_until(watchdog, lambda: climbed(watchdog, "checkpoint_and_exit"))
        assert watchdog.last_cleanup[0].error == "OSError: disk full"
        assert watchdog.step() == []


def test_calm_steps_cost_nothing() -> None:
    tracker = MemoryTracker(collector=ScriptedCollector(100), sampling_interval=10)
    watchdog = MemoryWatchdog(tracker)
    collector: Any = tracker.collector
    with tracker:
        asked = collector.asked
        assert [watchdog.step() for _ in range(100)] == [[]] * 100
        assert collector.asked == asked


def test_predictions_reach_their_callback() -> None:
    tracker = MemoryTracker(collector=ScriptedCollector(100), sampling_interval=10)
    watchdog = MemoryWatchdog(tracker, auto_cleanup=False)
    forecasts: list[TrackingEvent] = []
    watchdog.on_prediction(forecasts.append)
    alerts: list[tuple[str, dict[str, Any]]] = [
        ("warning", {"alert": "usage_warning"}),
        ("warning", {"alert": "forecast_warning", "seconds_to_limit": 300.0}),
        ("recovered", {"alert": "forecast_warning"}),
        ("critical", {"alert": "forecast_critical", "seconds_to_limit": 20.0}),
    ]
    for kind, metadata in alerts:
        tracker._deliver(TrackingEvent(0.0, kind, 1, 1, 0, 0, metadata=metadata))
    assert [(event.metadata or {})["seconds_to_limit"] for event in forecasts] == [300.0, 20.0]
    tracker.remove_prediction_callback(forecasts.append)
    tracker.remove_prediction_callback(forecasts.append)
    assert tracker.prediction_callbacks == []


class Growing(ScriptedCollector):
    """Grows by 0.2 % of the device with each sample."""

    def sample(self) -> Any:
        self.script = [min(300 + 2 * self.asked, 940)]
        return super().sample()


def test_memory_that_grows_is_predicted_before_it_is_full() -> None:
    scale = 16 * MB  # a device of 1000 bytes would be all noise

    class Device(Growing):
        def sample(self) -> Any:
            small = super().sample()
            names = ("allocated_bytes", "reserved_bytes", "used_bytes", "free_bytes", "total_bytes")
            return dataclasses.replace(small, **{name: getattr(small, name) * scale for name in names})

    tracker = MemoryTracker(collector=Device(1), sampling_interval=0.02)
    tracker.set_threshold("memory_leak_threshold", 1e18)
    forecasts: list[TrackingEvent] = []
    tracker.add_prediction_callback(forecasts.append)
    with tracker:
        for _ in range(1000):
            if forecasts:
                break
            time.sleep(0.01)
    assert forecasts and forecasts[0].metadata is not None
    assert 0 < forecasts[0].metadata["seconds_to_limit"] < 600
    assert (forecasts[0].device_used or 0) < (forecasts[0].device_total or 0)
