"""The tracker of this process: real memory, real threads, real files; the rules are tested in Rust."""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import mmap
import os
import subprocess
import sys
import threading
import time
import weakref
from importlib import import_module
from pathlib import Path

import pytest
import stormlog
from stormlog import CPUMemoryTracker, TrackingEvent, load_telemetry_events, load_telemetry_sessions
from stormlog.phases import PhaseProtocolError
from stormlog.telemetry_sink import TelemetrySinkConfig

MB = 1 << 20


def test_the_first_sample_needs_no_interval() -> None:
    tracker = CPUMemoryTracker(sampling_interval=3600)
    with tracker:
        assert tracker.is_tracking
        assert [event.event_type for event in tracker.get_events()] == ["start", "peak", "sample"]
    assert not tracker.is_tracking
    start, *_, stop = tracker.get_events()
    assert start.memory_allocated is not None and start.memory_allocated > MB
    assert (start.event_type, stop.event_type, start.context) == (
        "start",
        "stop",
        "CPU memory tracking started",
    )


def test_the_interval_is_kept_at_a_millisecond() -> None:
    with CPUMemoryTracker(sampling_interval=0.001) as tracker:
        time.sleep(0.3)
    samples = tracker.get_events("sample")
    # 300 are due; a busy machine may miss some.
    assert 60 <= len(samples) <= 400


def test_growth_raises_an_alert() -> None:
    seen: list[TrackingEvent] = []
    tracker = CPUMemoryTracker(sampling_interval=0.005)
    tracker.add_alert_callback(seen.append)
    # Low, for on a busy machine the pages come over several intervals: still one alert.
    tracker.set_threshold("memory_leak_threshold", MB)
    with tracker:
        time.sleep(0.05)
        fresh = mmap.mmap(-1, 32 * MB)  # not from a heap that may have it resident already
        fresh.write(b"x" * len(fresh))
        time.sleep(0.1)
        statistics = tracker.get_statistics()
    assert [event.event_type for event in seen] == ["warning"]
    assert seen[0].context is not None and seen[0].context.startswith("Large allocation detected: ")
    assert seen[0].metadata is not None and seen[0].metadata["large_allocation"] is True
    assert tracker.get_alerts() == seen
    assert statistics["alert_count"] == 1
    grown = sum(event.memory_change or 0 for event in tracker.get_events("allocation"))
    assert grown >= 28 * MB


def test_one_long_breach_is_one_alert() -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.002)
    tracker.set_threshold("memory_warning_percent", 0.0001)
    with tracker:
        time.sleep(0.1)
    assert len(tracker.get_alerts()) == 1
    assert len(tracker.get_events("recovered")) == 1
    quiet = CPUMemoryTracker(sampling_interval=0.002, enable_alerts=False)
    quiet.thresholds["memory_warning_percent"] = 0.0001
    with quiet:
        time.sleep(0.02)
    assert quiet.get_alerts() == []


def test_thresholds_are_a_dictionary_that_reaches_the_thread() -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.005)
    tracker.thresholds["my_own"] = 1.0
    with tracker:
        assert tracker.get_alerts() == []
        tracker.thresholds.update(memory_warning_percent=0.0001)
        time.sleep(0.1)
        assert len(tracker.get_alerts()) == 1
    assert tracker.thresholds["memory_critical_percent"] == 95.0
    assert len(tracker.get_events(last_n=-1)) == len(tracker.get_events()) - 1


def test_callback_that_raises_does_not_stop_the_tracker() -> None:
    alerts: list[str] = []

    def bad(event: TrackingEvent) -> None:
        raise RuntimeError("mine")

    tracker = CPUMemoryTracker(sampling_interval=0.01)
    tracker.set_threshold("memory_critical_percent", 0.0001)
    tracker.add_alert_callback(bad)
    tracker.add_alert_callback(lambda event: alerts.append(event.event_type))
    with tracker:
        pass
    assert alerts == ["critical"]
    tracker.remove_alert_callback(bad)
    with pytest.raises(ValueError, match="Unknown threshold: nothing"):
        tracker.set_threshold("nothing", 1)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="sampling_interval must be > 0"):
        CPUMemoryTracker(sampling_interval=0)
    with pytest.raises(ValueError, match="max_events must be >= 1"):
        CPUMemoryTracker(max_events=0)
    with pytest.raises(ValueError, match="interval must be > 0"):
        CPUMemoryTracker().get_memory_timeline(0)
    with pytest.raises(ValueError, match="Unsupported format: xml"):
        CPUMemoryTracker().export_events("x", "xml")


def test_events_can_be_picked_and_are_bounded() -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.001, max_events=20)
    with tracker:
        time.sleep(0.1)
    assert len(tracker.events) == tracker.events.maxlen == 20
    statistics = tracker.get_statistics()
    assert statistics["history_dropped_events"] > 0 and statistics["history_retained_events"] == 20
    last = tracker.get_events(last_n=1)
    assert [event.event_type for event in last] == ["stop"]
    assert tracker.get_events(since=last[0].timestamp)[-1] == last[0]
    tracker.clear_events()
    assert tracker.get_events() == [] and tracker.get_statistics()["history_dropped_events"] == 0


def test_phases_nest_by_thread() -> None:
    tracker = CPUMemoryTracker(sampling_interval=3600)
    with pytest.raises(RuntimeError, match="Tracking must be active"):
        tracker.enter_phase("early")
    with tracker:
        with tracker.phase("train", metadata={"epoch": 1}), tracker.phase("forward") as inner:
            assert inner.phase_path == "train / forward"
        outer = tracker.enter_phase("a")
        nested = tracker.enter_phase("b")
        with pytest.raises(PhaseProtocolError, match="LIFO"):
            outer.close()
        errors: list[str] = []

        def elsewhere() -> None:
            try:
                nested.close()
            except PhaseProtocolError as error:
                errors.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert errors == ["Phase handle was closed from a different thread than it was opened."]
        nested.close()
        outer.close()
        with pytest.raises(ValueError, match="non-empty"):
            tracker.enter_phase("  ")
    enter = tracker.get_events("phase_enter")[0]
    assert enter.metadata is not None
    scope = enter.metadata["phase_scope"]
    assert (scope["name"], scope["depth"], scope["attributes"]) == ("train", 1, {"epoch": 1})
    assert scope["thread_id"] == threading.get_ident()


def test_exports_load(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.005, job_id="j", rank=1, local_rank=0, world_size=2)
    tracker.export_events(tmp_path / "none.json", "json")
    assert not (tmp_path / "none.json").exists()
    with tracker, tracker.phase("x"):
        time.sleep(0.02)
    kept = tracker.get_events()
    for form in ("json", "csv"):
        path = Path(tracker.export_events_with_timestamp(tmp_path, form))
        assert path.name.startswith("cpu_tracker_") and path.suffix == f".{form}"
        events = load_telemetry_events(path)
        assert [event.event_type for event in events] == [event.event_type for event in kept]
        assert {event.rank for event in events} == {1} and {event.job_id for event in events} == {"j"}
        assert {event.collector for event in events} == {"stormlog.cpu_tracker"}
        entered = next(event for event in events if event.event_type == "phase_enter")
        assert entered.metadata["phase_scope"]["name"] == "x"
    with next(tmp_path.glob("*.csv")).open() as file:
        assert len(list(csv.reader(file))) == len(kept) + 1


def test_sink_and_recording_keep_everything(tmp_path: Path) -> None:
    config = TelemetrySinkConfig(root_dir=tmp_path / "sink")
    tracker = CPUMemoryTracker(0.002, telemetry_sink_config=config, recording_dir=tmp_path / "recording")
    for _ in range(2):
        with tracker:
            time.sleep(0.03)
    sessions = load_telemetry_sessions(tmp_path / "sink")
    assert sorted(session.summary.status for session in sessions) == ["completed", "completed"]
    summary = tracker.get_session_summary()
    assert summary is not None and summary.status == "completed" and summary.source == "stormlog.cpu_profiler"
    mine = next(session for session in sessions if session.summary.session_id == summary.session_id)
    assert len(mine.events) == len(tracker.events)
    assert tracker.get_statistics()["final_retained_files"] >= 1
    for name in ("recording", "recording-2"):
        recorded = load_telemetry_sessions(tmp_path / name)
        assert [session.summary.status for session in recorded] == ["completed"]


def test_recording_survives_a_kill(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time; from stormlog import CPUMemoryTracker; "
        "t = CPUMemoryTracker(0.005, recording_dir=sys.argv[1]); t.start_tracking(); time.sleep(0.2); "
        "print(time.time_ns(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -9
    (session,) = load_telemetry_sessions(tmp_path)
    assert session.summary.status != "completed"
    # Within an interval of the end; the rest is for a busy machine.
    assert session.events[-1].timestamp_ns > int(done.stdout) - 100_000_000


def test_tracker_without_references_stops(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.001)
    tracker.start_tracking()
    gone = weakref.ref(tracker)
    del tracker
    gc.collect()
    assert gone() is None
    assert _thread_ends("stormlog-track")


def _thread_ends(name: str) -> bool:
    for _ in range(2000):
        if name not in _thread_names():
            return True
        time.sleep(0.01)
    return False


def _thread_names() -> set[str]:
    names = set()
    for task in Path("/proc/self/task").glob("*/comm"):
        # One that ends between the listing and the reading has no name any more.
        with contextlib.suppress(OSError):
            names.add(task.read_text().strip())
    return names


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_not_held_up() -> None:
    with CPUMemoryTracker(sampling_interval=0.001) as tracker:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                # Whatever lock the thread held at the fork, none of this may wait for it.
                tracker.get_events()
                tracker.get_statistics()
                tracker.stop_tracking()
                with CPUMemoryTracker(sampling_interval=0.001) as own:
                    own.get_events()
                os._exit(0 if not tracker.is_tracking else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert tracker.is_tracking


def test_leaving_without_a_stop_is_quick() -> None:
    code = (
        "from stormlog import CPUMemoryTracker; "
        "t = CPUMemoryTracker(0.001); t.set_threshold('memory_warning_percent', 0); "
        "t.add_alert_callback(print); t.start_tracking()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and done.stderr == ""


def test_out_of_memory_for_real(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from stormlog import CPUMemoryTracker\n"
        "t = CPUMemoryTracker(0.01, enable_oom_flight_recorder=True, oom_dump_dir=sys.argv[1])\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        "t.start_tracking()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (120 << 20),) * 2)\n"
        "blocks = []\n"
        "try:\n"
        "    with t.capture_oom('load', {'batch': 7}), t.phase('fill'):\n"
        "        while True: blocks.append(bytearray(8 << 20))\n"
        "except MemoryError:\n"
        "    print(t.last_oom_dump_path)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bundle = Path(done.stdout.strip())
    metadata = json.loads((bundle / "metadata.json").read_text())
    assert metadata["reason"] == "builtins.MemoryError"
    assert metadata["context"] == "load" and metadata["custom_metadata"]["batch"] == 7
    assert metadata["custom_metadata"]["sample_used_bytes"] > 50 * MB
    events = load_telemetry_events(bundle)
    assert events[0].event_type == "start" and events[0].device_used_bytes is not None
    # Not the last: the thread goes on sampling while the bundle is being written.
    assert "OOM detected (builtins.MemoryError)" in [event.context for event in events]


def test_the_package_has_it_under_both_names() -> None:
    from gpumemprof.cpu_profiler import CPUMemoryTracker as Older

    assert import_module("gpumemprof").CPUMemoryTracker is Older is stormlog.CPUMemoryTracker
