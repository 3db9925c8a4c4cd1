"""The tracker of TensorFlow programs with the real TensorFlow: the CPU, and a GPU that cannot be asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from stormlog import query  # noqa: E402
from stormlog.telemetry import validate_telemetry_record  # noqa: E402
from stormlog.telemetry_sink import TelemetrySinkConfig  # noqa: E402
from stormlog.tensorflow import TensorFlowMemoryTracker  # noqa: E402
from stormlog.tensorflow.diagnose import run_diagnose  # noqa: E402
from stormlog.tensorflow.tracker import MemoryWatchdog  # noqa: E402


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


def test_samples_phases_alerts_and_a_sink(tmp_path: Path) -> None:
    sink = TelemetrySinkConfig(root_dir=tmp_path)
    tracker = TensorFlowMemoryTracker(0.01, alert_threshold_mb=1, job_id="j", telemetry_sink_config=sink)
    seen: list[dict[str, Any]] = []
    tracker.add_alert_callback(seen.append)
    tracker.add_alert_callback(lambda alert: 1 / 0)
    tracker.start_tracking()
    with tracker.phase("load", metadata={"epoch": 1}):
        wait_for(lambda: len(tracker.memory_usage) >= 3)
    assert tracker.tracking and tracker.check_alerts()
    result = tracker.stop_tracking()
    assert not tracker.tracking
    assert result.peak_memory >= result.average_memory >= result.min_memory > 50
    assert len(result.memory_usage) == len(result.timestamps) == result.history_retained_samples >= 3
    assert result.alerts_triggered == seen and seen[0]["threshold_mb"] == 1
    for record in result.events:
        validate_telemetry_record(record)
    kinds = [record["event_type"] for record in result.events]
    assert kinds[0] == "start" and kinds[-1] == "stop"
    assert [kind for kind in kinds if "phase" in kind] == ["phase_enter", "phase_exit"]
    (row,) = query.open([tmp_path]).list_sessions()
    assert (row.status, row.job_id, row.event_count) == ("completed", "j", len(kinds))
    assert row.session_id == tracker.get_statistics()["session_id"]


def test_a_device_that_cannot_be_asked_is_told_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = TensorFlowMemoryTracker(0.01, device="/GPU:0")
    tracker.start_tracking()
    wait_for(lambda: tracker.get_statistics()["collector_consecutive_failures"])
    assert tracker.get_statistics()["current_memory_mb"] is None
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda device: {"current": 2 << 20})
    wait_for(lambda: tracker.memory_usage)
    result = tracker.stop_tracking()
    kinds = [record["event_type"] for record in result.events]
    assert kinds[:4] == ["start", "collector_degraded", "collector_recovered", "sample"]
    assert set(result.memory_usage) == {2.0}
    assert result.events[3]["device_id"] == 0


def test_the_history_is_bounded() -> None:
    tracker = TensorFlowMemoryTracker(0.001, max_history=3)
    tracker.start_tracking()
    wait_for(lambda: tracker.get_statistics()["history_dropped_samples"] >= 2)
    result = tracker.stop_tracking()
    assert len(result.memory_usage) == len(result.events) == 3
    assert tracker.stop_tracking().memory_usage == []


@pytest.mark.parametrize(
    ("changes", "text"), [({"sampling_interval": 0}, "sampling"), ({"max_history": 0}, "max_h")]
)
def test_wrong_settings_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TensorFlowMemoryTracker(**changes)
    with pytest.raises(RuntimeError, match="Tracking must be active"):
        TensorFlowMemoryTracker().enter_phase("p")


def test_a_watchdog_asks_the_program_to_give_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stormlog.tensorflow._runtime.gpus", lambda tf: ["GPU"])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda device: {"current": 7 << 30})
    watchdog = MemoryWatchdog(check_interval=0.01)
    asked: list[int] = []
    watchdog.add_cleanup_callback(lambda: asked.append(1))
    watchdog.start()
    wait_for(lambda: len(asked) >= 2)
    watchdog.stop()
    assert not watchdog.active


def test_a_diagnosis_from_inside(tmp_path: Path) -> None:
    folder, code = run_diagnose(str(tmp_path / "new"), None, 0.2, 0.05, "program")
    timeline = json.loads((folder / "telemetry_timeline.json").read_text())
    assert code == 0 and len(timeline["timestamps"]) >= 1
    assert all(size > 50 << 20 for size in timeline["allocated"])
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["system"]["tensorflow_version"] == tf.__version__
