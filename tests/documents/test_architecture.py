"""architecture.txt: every name that it gives is there, and its four flows run."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import stormlog
from documents import document
from stormlog.session import SESSION_STATUSES

TEXT = document("architecture.txt")
# `module: names`, as the document gives them.
NAMES = {
    "stormlog": "GPUMemoryProfiler MemoryTracker CPUMemoryProfiler CPUMemoryTracker MemoryVisualizer "
    "MemoryAnalyzer GapFinding TelemetryEventV2",
    "stormlog.profiler": "GPUMemoryProfiler",
    "stormlog.cpu_profiler": "CPUMemoryProfiler CPUMemoryTracker",
    "stormlog.tracker": "MemoryTracker",
    "stormlog.analyzer": "MemoryAnalyzer",
    "stormlog.visualizer": "MemoryVisualizer",
    "stormlog.telemetry": "TelemetryEventV3",
    "stormlog.device_collectors": "DeviceMemoryCollector DeviceMemorySample CudaDeviceCollector "
    "ROCmDeviceCollector MPSDeviceCollector",
    "stormlog.derived_fields": "",
    "stormlog.session": "",
    "stormlog.tui": "run_app",
    "stormlog.tui.distributed_diagnostics": "",
    "stormlog.tensorflow": "TFMemoryProfiler TensorFlowProfiler TensorFlowMemoryTracker "
    "TensorFlowVisualizer TensorFlowAnalyzer TensorFlowGapFinding",
    "stormlog.tensorflow.profiler": "TFMemoryProfiler",
    "stormlog.tensorflow.context_profiler": "TensorFlowProfiler ProfiledLayer",
    "stormlog.tensorflow.tracker": "MemoryTracker",
    "stormlog.tensorflow.analyzer": "MemoryAnalyzer",
    "stormlog.tensorflow.visualizer": "MemoryVisualizer",
    "stormlog.tensorflow.utils": "",
}


@pytest.mark.parametrize("module", NAMES)
def test_names_of_the_document_are_in_their_module(module: str) -> None:
    found = import_module(module)
    for name in NAMES[module].split():
        assert name in TEXT
        assert hasattr(found, name), name


def test_tensorflow_tracker_is_the_alias_that_the_document_names() -> None:
    assert (
        import_module("stormlog.tensorflow").TensorFlowMemoryTracker
        is import_module("stormlog.tensorflow.tracker").MemoryTracker
    )


def test_sessions_have_the_states_of_the_document() -> None:
    assert "running,completed,interrupted,incomplete" in TEXT
    assert {"running", "completed", "interrupted", "incomplete"} == set(SESSION_STATUSES)


def test_profiling_flow_ends_in_a_summary() -> None:
    profiler = stormlog.CPUMemoryProfiler()
    # Memory of its own mapping: what the interpreter's heap hands out may have been resident before.
    held = mmap.mmap(-1, 32 << 20)
    with profiler.profile_context("block"):
        for at in range(0, len(held), mmap.PAGESIZE):
            held[at] = 1
    profiler.profile_function(len, held)
    summary = profiler.get_summary()
    assert summary["peak_memory_usage"] - summary["baseline_rss"] >= 32 << 20


def test_tracking_flow_ends_in_a_completed_session(tmp_path: Path) -> None:
    tracker = stormlog.CPUMemoryTracker(sampling_interval=0.01)
    tracker.start_tracking()
    tracker.stop_tracking()
    out = tmp_path / "events.json"
    tracker.export_events(str(out), format="json")
    sessions = {event["session_id"] for event in json.loads(out.read_text(encoding="utf-8"))}
    assert len(sessions) == 1
    summary = tracker.get_session_summary()
    assert summary is not None and summary.status == "completed"


def test_diagnose_flow_ends_in_a_bundle_with_its_session(tmp_path: Path) -> None:
    gpumemprof = Path(sys.executable).with_name("gpumemprof")
    command: list[str | Path] = [
        gpumemprof,
        "diagnose",
        "--output",
        str(tmp_path / "bundle"),
        "--duration",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (manifest,) = tmp_path.rglob("manifest.json")
    found = json.loads(manifest.read_text(encoding="utf-8"))
    assert found["session_id"]
    assert found["session_status"] == "completed"


def test_document_lists_the_tabs_of_a_terminal_ui_that_starts_without_torch() -> None:
    assert "OverviewPyTorchTensorFlowMonitoringVisualizationsDiagnosticsCLI & Actions" in TEXT
    code = "import sys, stormlog.tui; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
    assert callable(import_module("stormlog.tui").run_app)
