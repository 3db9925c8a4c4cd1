"""`MemoryTracker` over collectors written in Python, a stand-in for PyTorch, and nothing but the host."""

from __future__ import annotations

import inspect
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import stormlog
import torch_stand_in
from places import HELPERS
from scripted_collector import ScriptedCollector, until
from stormlog import MemoryTracker, MemoryWatchdog, TrackingEvent, load_telemetry_events
from stormlog.device_collectors import (
    DeviceMemoryCapabilities,
    DeviceMemorySample,
    DeviceMemorySampleResult,
)
from stormlog.telemetry_sink import TelemetrySinkConfig

GB = 1 << 30


# Of PyTorch's allocator and of collectors of one's own; `max_history` is the frameworks' word for the third.
OF_PYTORCH = {"collector", "enable_native_cuda_history", "native_history_max_entries", "max_events"}


@pytest.mark.parametrize("framework", [stormlog.tensorflow.tracker, stormlog.jax.tracker])
def test_trackers_of_frameworks_have_everything_of_this_one(framework: ModuleType) -> None:
    public = {name for name in dir(MemoryTracker) if not name.startswith("_")}
    assert public <= set(dir(framework.MemoryTracker))
    asked = set(inspect.signature(MemoryTracker).parameters) - OF_PYTORCH
    given = set(inspect.signature(framework.MemoryTracker).parameters)
    assert asked - given <= ({"device"} if "device_index" in given else set())


def test_a_collector_of_ones_own_is_tracked(tmp_path: Path) -> None:
    collector = ScriptedCollector(100, 100, 160, 120)
    tracker = MemoryTracker(collector=collector, sampling_interval=0.005, rank=1, world_size=2)
    assert (tracker.backend, tracker.total_memory, tracker.device) == ("xpu", 1000, None)
    with tracker:
        until(lambda: len(tracker.get_events("sample")) > 4)
        statistics = tracker.get_statistics()
    assert [event.event_type for event in tracker.get_events()][:3] == ["start", "peak", "sample"]
    assert (statistics["peak_memory"], statistics["peak_device_used"]) == (160, 160)
    assert statistics["total_allocations"] == 1 and statistics["total_allocation_bytes"] == 60
    assert statistics["total_deallocations"] == 1 and statistics["average_deallocation_size"] == 40
    assert statistics["current_memory_allocated"] == 120 and statistics["device_total"] == 1000
    assert statistics["memory_utilization_percent"] == 12.0
    sample = tracker.get_events("sample")[0]
    assert (sample.device_id, sample.rank, sample.backend, sample.memory_change) == (3, 1, "xpu", None)
    assert sample.metadata is not None and sample.metadata["collector_health_status"] == "healthy"
    path = tmp_path / "events.json"
    tracker.export_events(str(path), "json")
    events = load_telemetry_events(path)
    assert {event.collector for event in events} == {"my.collector"}
    assert events[1].metadata["sampling_source"] == "script" and events[1].metadata["backend"] == "xpu"
    timeline = tracker.get_memory_timeline(interval=1000)
    assert timeline["allocated"] == [120] and timeline["device_free"] == [880]


def test_a_failing_collector_degrades_and_recovers() -> None:
    collector = ScriptedCollector(100, 100, RuntimeError("gone"), 100)
    with MemoryTracker(collector=collector, sampling_interval=0.005) as tracker:
        until(lambda: bool(tracker.get_events("collector_degraded")))
        statistics = tracker.get_statistics()
        assert statistics["collector_health_status"] == "unhealthy"
        assert statistics["collector_last_error"] == "gone"
        assert statistics["current_memory_allocated"] is None
        asked = collector.asked
        time.sleep(0.1)
        assert collector.asked == asked, "not asked again before the pause is over"
        until(lambda: bool(tracker.get_events("collector_recovered")))
    recovered = tracker.get_events("collector_recovered")[0]
    assert recovered.metadata is not None and recovered.metadata["collector_previous_error"] == "gone"


def test_a_partial_sample_is_kept_and_named() -> None:
    class Partial(ScriptedCollector):
        def sample_with_diagnostics(self) -> DeviceMemorySampleResult:
            sample = DeviceMemorySample(5, 5, 5, None, 1000, None, None, 3)
            return DeviceMemorySampleResult(sample, ("device_free_bytes",), {"device_free_bytes": "why"})

    with MemoryTracker(collector=Partial(1), sampling_interval=10) as tracker:
        sample = tracker.get_events("sample")[0]
    assert sample.context == "Collected partial telemetry sample (device_free_bytes)."
    assert sample.metadata is not None and sample.metadata["collector_health_status"] == "degraded"
    assert sample.device_free is None


def test_sample_that_contradicts_its_collector_is_dropped() -> None:
    tracker = MemoryTracker(collector=ScriptedCollector(2000), sampling_interval=10)
    with tracker:
        pass
    assert tracker.get_events("sample") == []
    assert tracker.get_statistics()["collector_last_error"] == "device_free_bytes must be >= 0 when provided"


def test_alerts_reach_callbacks_on_the_tracking_thread() -> None:
    alerts: list[tuple[str, str]] = []

    def callback(event: TrackingEvent) -> None:
        alerts.append((event.context or "", threading.current_thread().name))

    tracker = MemoryTracker(collector=ScriptedCollector(100, 100, 970), sampling_interval=0.005)
    tracker.add_alert_callback(callback)
    with tracker:
        until(lambda: bool(alerts))
        time.sleep(0.05)
    assert [text for text, _ in alerts] == ["CRITICAL: Memory usage at 97.0%"]
    assert alerts[0][1] != "MainThread"
    assert tracker.get_statistics()["alert_count"] == 1


def test_a_callback_may_use_the_tracker() -> None:
    tracker = MemoryTracker(collector=ScriptedCollector(100, 100, 970), sampling_interval=0.005)
    done = threading.Event()

    def callback(event: TrackingEvent) -> None:
        tracker.get_statistics()
        tracker.get_events()
        tracker.stop_tracking()
        done.set()

    tracker.add_alert_callback(callback)
    tracker.start_tracking()
    assert done.wait(10)
    until(lambda: not tracker.is_tracking)


def test_device_only_counters_leave_the_allocators_unknown() -> None:
    class Used(ScriptedCollector):
        def sample(self) -> DeviceMemorySample:
            return DeviceMemorySample(None, None, 900, None, 1000, None, None, 0)

        def capabilities(self) -> DeviceMemoryCapabilities:
            return DeviceMemoryCapabilities(
                "npu", "npu.tracker", "driver", supports_device_used=True, supports_device_total=True
            )

    with MemoryTracker(collector=Used(0), sampling_interval=10) as tracker:
        statistics = tracker.get_statistics()
    assert statistics["peak_memory"] is None and statistics["total_allocations"] is None
    assert statistics["peak_device_used"] == 900
    assert [event.context for event in tracker.get_alerts()] == ["WARNING: Memory usage at 90.0%"]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be provided together"):
        MemoryTracker(device=0, collector=ScriptedCollector(1))
    with pytest.raises(ValueError, match="native_history_max_entries must be >= 1"):
        MemoryTracker(native_history_max_entries=0)
    with pytest.raises(ValueError, match="native allocator history is unavailable for backend 'cpu'"):
        MemoryTracker(enable_native_cuda_history=True)
    assert MemoryTracker(max_events=7, oom_buffer_size=0).oom_buffer_size == 7


def test_tracker_works_without_torch_and_gpu() -> None:
    assert "torch" not in sys.modules
    for device in (None, 0, "cpu"):
        with MemoryTracker(device=device, sampling_interval=10) as tracker:
            sample = tracker.get_events("sample")[0]
        assert tracker.backend == "cpu" and sample.device_id == -1
        assert sample.device_used and sample.device_total


def test_torchs_device_through_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = torch_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", torch)
    with MemoryTracker(device=0, sampling_interval=10) as tracker:
        sample = tracker.get_events("sample")[0]
        watchdog = MemoryWatchdog(tracker)
        won = watchdog.force_cleanup(aggressive=True)
    assert tracker.backend == "cuda" and tracker.gpu_info["device_name"] == "Stand-in"
    assert (sample.memory_reserved, sample.device_used) == (3 * GB, 5 * GB), "the hidden gap is real"
    assert [rung.name for rung in won] == [
        "drop_exception_frames",
        "gc_collect",
        "synchronize",
        "empty_cache",
        "malloc_trim",
    ]
    assert torch.calls == ["synchronize", "empty_cache"]
    fragmented = [event for event in tracker.get_alerts() if "fragmentation" in (event.metadata or {})]
    assert [event.context for event in fragmented] == ["High fragmentation: 33.3%"]


def test_the_watchdog_says_what_each_step_won() -> None:
    cache = [mmap.mmap(-1, 24 << 20)]  # given back to the system at once, unlike heap memory
    cache[0].write(b"x" * len(cache[0]))
    tracker = MemoryTracker(sampling_interval=0.01)
    watchdog = MemoryWatchdog(tracker)
    watchdog.add_cleanup_callback(cache.clear)
    tracker.set_threshold("memory_critical_percent", 0.0)
    with tracker:
        until(lambda: watchdog.cleanup_count == 1)
        until(lambda: bool(tracker.get_events("cleanup")))
    rungs = {rung.name: rung for rung in watchdog.last_cleanup}
    assert (rungs["callback_clear"].bytes_won or 0) >= 20 << 20
    statistics = watchdog.get_cleanup_stats()
    assert statistics["cleanup_count"] == 1 and statistics["last_cleanup_bytes_won"] >= 20 << 20
    event = tracker.get_events("cleanup")[0]
    assert event.context == "Performed aggressive memory cleanup"
    assert event.metadata is not None and event.metadata["cleanup"][0]["name"] == "drop_exception_frames"


def test_a_step_that_fails_does_not_end_the_ladder() -> None:
    watchdog = MemoryWatchdog(MemoryTracker(sampling_interval=10), auto_cleanup=False)

    def broken() -> None:
        raise RuntimeError("mine")

    watchdog.add_cleanup_callback(broken)
    rungs = watchdog.force_cleanup()
    assert [(rung.name, rung.error) for rung in rungs] == [
        ("callback_broken", "RuntimeError: mine"),
        ("malloc_trim", None),
    ]


def test_a_sink_that_fails_is_given_up_quietly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "sink"
    config = TelemetrySinkConfig(root_dir=root, flush_every_events=1)
    tracker = MemoryTracker(sampling_interval=10, telemetry_sink_config=config)
    tracker.start_tracking()
    for path in root.glob("*"):
        path.unlink()
    root.rmdir()
    root.write_text("in the way")
    with tracker.phase("x"):
        pass
    tracker.stop_tracking()
    summary = tracker.get_session_summary()
    assert summary is not None and summary.status == "incomplete"
    assert "Disabling telemetry sink after append failure" in caplog.text
    assert tracker.get_events()[-1].event_type == "stop"


def test_both_documented_ways_write_a_bundle(tmp_path: Path) -> None:
    tracker = MemoryTracker(
        collector=ScriptedCollector(100),
        sampling_interval=10,
        enable_oom_flight_recorder=True,
        oom_dump_dir=str(tmp_path),
        oom_buffer_size=50,
        oom_max_dumps=2,
    )
    tracker.start_tracking()
    with pytest.raises(RuntimeError), tracker.capture_oom("train.forward", {"batch_size": 128}):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    first = tracker.last_oom_dump_path
    assert first is not None
    manifest = json.loads((Path(first) / "manifest.json").read_text())
    assert manifest["reason"] == "message_pattern:out of memory" and manifest["backend"] == "xpu"
    metadata = json.loads((Path(first) / "metadata.json").read_text())
    assert metadata["custom_metadata"]["batch_size"] == 128
    assert metadata["custom_metadata"]["sample_allocated_bytes"] == 100
    assert tracker.handle_exception(ValueError("no such thing")) is None
    assert tracker.last_oom_dump_path == first
    second = tracker.handle_exception(MemoryError(), context="x")
    third = tracker.handle_exception(MemoryError(), context="y")
    tracker.stop_tracking()
    assert second is not None and third is not None
    assert sorted(str(path) for path in tmp_path.iterdir()) == sorted([second, third])
    off = MemoryTracker(sampling_interval=10)
    assert off.handle_exception(MemoryError()) is None


def test_exit_without_stop_is_clean() -> None:
    code = (
        "import scripted_collector; from stormlog import MemoryTracker; "
        "collector = scripted_collector.ScriptedCollector(100, 100, 990, 10); "
        "t = MemoryTracker(collector=collector, sampling_interval=0.001); "
        "t.add_alert_callback(lambda event: None); t.start_tracking()"
    )
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=30,
            cwd=HELPERS,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_of_a_python_collector_is_not_held_up() -> None:
    with MemoryTracker(collector=ScriptedCollector(100), sampling_interval=0.001) as tracker:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                tracker.get_statistics()
                tracker.get_events()
                tracker.stop_tracking()
                os._exit(1 if tracker.is_tracking else 0)
            assert os.waitpid(child, 0)[1] == 0
