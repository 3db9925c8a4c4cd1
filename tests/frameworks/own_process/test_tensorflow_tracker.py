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
from stormlog.tensorflow import TensorFlowAnalyzer, TensorFlowMemoryTracker, TFMemoryProfiler  # noqa: E402
from stormlog.tensorflow.diagnose import build_diagnostic_summary, run_diagnose  # noqa: E402
from stormlog.tensorflow.tracker import MemoryWatchdog  # noqa: E402

# Before TensorFlow has its devices nothing is asked of them; the stand-ins for a GPU below are asked.
tf.ones(1)


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
    # One long breach is one alert.
    above = [alert for alert in seen if alert["alert"] == "usage_threshold"]
    assert result.alerts_triggered == seen and len(above) == 1 and above[0]["threshold_mb"] == 1
    for record in result.events:
        validate_telemetry_record(record)
    kinds = [record["event_type"] for record in result.events]
    assert kinds[0] == "start" and kinds[-1] == "stop"
    assert [kind for kind in kinds if "phase" in kind] == ["phase_enter", "phase_exit"]
    (row,) = query.open([tmp_path]).list_sessions()
    assert (row.status, row.job_id, row.event_count) == ("completed", "j", len(kinds))
    assert row.session_id == tracker.get_statistics()["session_id"]


def test_device_that_fails_is_reported_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = TensorFlowMemoryTracker(0.01, device="/GPU:0")
    tracker.start_tracking()
    wait_for(lambda: tracker.get_statistics()["collector_consecutive_failures"])
    assert tracker.get_statistics()["current_memory_mb"] is None
    monkeypatch.setattr("stormlog.tensorflow._runtime.memory_limit", lambda tf, number: 1 << 30)
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda device: {"current": 2 << 20})
    wait_for(lambda: tracker.memory_usage)
    result = tracker.stop_tracking()
    kinds = [record["event_type"] for record in result.events]
    assert kinds[:3] == ["start", "collector_degraded", "collector_recovered"] and "sample" in kinds
    assert set(result.memory_usage) == {2.0}
    assert all(record["device_id"] == 0 for record in result.events)


def test_a_threshold_may_change_while_it_tracks() -> None:
    tracker = TensorFlowMemoryTracker(0.01, enable_logging=False)
    with tracker:
        assert tracker.alerts == [] and not tracker.check_alerts()
        tracker.set_alert_threshold(1)
        wait_for(lambda: tracker.alerts)
        tracker.alert_threshold_mb = None
        wait_for(lambda: tracker.get_events("recovered"))


def test_a_session_is_recorded_exported_and_predicted_like_any_other(tmp_path: Path) -> None:
    tracker = TensorFlowMemoryTracker(0.01, recording_dir=tmp_path / "run")
    tracker.add_prediction_callback(lambda event: None)
    with tracker:
        wait_for(lambda: len(tracker.memory_usage) >= 3)
        assert tracker.forecast_seconds is None or tracker.forecast_seconds > 0
    tracker.export_events(tmp_path / "events.json", format="json")
    assert len(json.loads((tmp_path / "events.json").read_text())) == len(tracker.get_events())
    assert (tmp_path / "run").is_dir()
    statistics = tracker.get_statistics()
    assert statistics["memory_limit"] > 0 and statistics["session_status"] == "completed"
    assert tracker.total_memory == statistics["memory_limit"]
    timeline = tracker.get_memory_timeline(0.01)
    assert timeline["allocated"][-1] == round(tracker.memory_usage[-1] * (1 << 20))


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


@pytest.mark.parametrize(("gibibytes", "is_repeated"), [(7, False), (9, True)])
def test_a_watchdog_cleans_up_once_a_breach_and_again_above_the_maximum(
    monkeypatch: pytest.MonkeyPatch, gibibytes: int, is_repeated: bool
) -> None:
    looks: list[int] = []

    def memory_info(device: str) -> dict[str, int]:
        looks.append(1)
        return {"current": gibibytes << 30}

    monkeypatch.setattr("stormlog.tensorflow._runtime.gpus", lambda tf: ["GPU"])
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", memory_info)
    watchdog = MemoryWatchdog(check_interval=0.01)
    asked: list[int] = []
    watchdog.add_cleanup_callback(lambda: asked.append(1))
    watchdog.start()
    wait_for(lambda: len(looks) >= 4 and asked)
    watchdog.stop()
    assert not watchdog.active
    assert len(asked) >= 3 if is_repeated else len(asked) == 1


def test_analyzer_takes_the_results_of_profiler_and_tracker() -> None:
    profiler = TFMemoryProfiler(device="/CPU:0")
    with TensorFlowMemoryTracker(0.005, enable_logging=False) as tracker:
        for _ in range(12):
            profiler.capture_snapshot()
        wait_for(lambda: len(tracker.memory_usage) >= 12)
    for result in (profiler.get_results(), tracker.get_tracking_results()):
        report = TensorFlowAnalyzer().score_optimization(result)
        assert 0 <= report["overall_score"] <= 10


def test_diagnosis_finds_a_gpu_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {"current_memory_mb": 950.0, "peak_memory_mb": 970.0}
    monkeypatch.setattr("stormlog.tensorflow.diagnose.get_gpu_info", lambda: {"devices": [{}, gpu]})
    limits = {0: 1 << 40, 1: 1000 << 20}
    monkeypatch.setattr("stormlog.tensorflow.diagnose.memory_limit", lambda tf, number: limits[number])
    summary, is_risky = build_diagnostic_summary("/GPU:1")
    assert is_risky and summary["risk_flags"]["high_utilization"]
    assert summary["total_bytes"] == 1000 << 20 and summary["utilization_ratio"] == pytest.approx(0.95)
    assert not build_diagnostic_summary("/GPU:0")[1]


def test_a_diagnosis_from_inside(tmp_path: Path) -> None:
    folder, code = run_diagnose(str(tmp_path / "new"), None, 0.2, 0.05, "program")
    timeline = json.loads((folder / "telemetry_timeline.json").read_text())
    assert code == 0 and len(timeline["timestamps"]) >= 1
    assert all(size > 50 << 20 for size in timeline["allocated"])
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["system"]["tensorflow_version"] == tf.__version__
