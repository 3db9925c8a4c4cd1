"""Analysis from Python: beside the real stormlog 0.4.3, and on what a program has at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stormlog import CPUMemoryTracker, GapFinding, MemoryAnalyzer, load_telemetry_events
from stormlog.distributed_analysis import summarize_cross_rank_analysis
from stormlog.timeline_markers import derive_timeline_markers

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
CASES = Path(__file__).parents[1] / "golden" / "analysis" / "cases.json"
# Lists 0.4.3 has in the arbitrary order of a set.
SETS = {"affected_functions", "memory_intensive_functions"}


def run(python: str, folder: Path) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, "-W", "ignore", str(Path(__file__).parent / "peer_analysis.py"), str(CASES)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def compare(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal, floats to twelve digits: the last one depends on the order of a sum."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and list(ours) == list(theirs), (where, ours, theirs)
        for key, value in theirs.items():
            mine, other = (sorted(ours[key]), sorted(value)) if key in SETS else (ours[key], value)
            compare(mine, other, f"{where}/{key}")
    elif isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs), (where, ours, theirs)
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            compare(mine, other, f"{where}/{place}")
    elif isinstance(theirs, float):
        assert type(ours) is float, (where, ours, theirs)
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-15, nan_ok=True), where
    else:
        assert ours == theirs and type(ours) is type(theirs), (where, ours, theirs)


@pytest.mark.skipif(not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3")
def test_the_same_input_gives_the_same_results(tmp_path: Path) -> None:
    assert PEER
    theirs, ours = run(PEER, tmp_path), run(sys.executable, tmp_path)
    compare(ours, theirs)
    found = [report["all_patterns"] + report["all_insights"] for report in ours["calls"]]
    kinds = {entry.get("pattern_type", entry.get("title")) for report in found for entry in report}
    assert len(kinds) >= 8, kinds


def test_a_tracker_s_own_events_can_be_analysed(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.005)
    with tracker, tracker.phase("work"):
        tracker._add_event("sample", 0, "inside")
    tracker.export_events(tmp_path / "events.json", "json")
    events = load_telemetry_events(tmp_path / "events.json")
    report = MemoryAnalyzer().generate_optimization_report(events=events)
    assert report["optimization_score"]["grade"] == "A"
    assert report["gap_analysis"] == []
    assert json.loads(json.dumps(report)) == report
    labels = [marker.label for marker in derive_timeline_markers(events)]
    assert any(label == "Phase: work" for label in labels)
    assert labels[0] and summarize_cross_rank_analysis(events)["participating_ranks"] == [0]


def test_mappings_and_hostile_values_are_no_trouble() -> None:
    class Event:
        timestamp_ns = 5
        event_type = "sample"
        rank = 0
        world_size = 1
        device_total_bytes = 100
        device_used_bytes = -1
        allocator_reserved_bytes = 1
        metadata: dict[str, Any] = {}  # noqa: RUF012
        context = None

    looped: dict[str, Any] = {}
    looped["self"] = [looped]
    Event.metadata = looped
    with pytest.raises(ValueError, match="device_used_bytes must be between 0 and 2\\^64, not -1"):
        MemoryAnalyzer().analyze_memory_gaps([Event()])  # type: ignore[list-item]
    Event.device_used_bytes = 50
    assert MemoryAnalyzer().analyze_collective_attribution([Event()] * 9) == []  # type: ignore[list-item]
    assert MemoryAnalyzer().analyze_memory_gaps([Event()] * 9) == []  # type: ignore[list-item]


def test_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from stormlog import MemoryAnalyzer, GapFinding, TimelineMarker; "
        "from stormlog.tensorflow import TensorFlowAnalyzer; "
        "from tfmemprof.analyzer import MemoryAnalyzer as Theirs; assert Theirs is TensorFlowAnalyzer; "
        "print([name for name in ('numpy', 'scipy', 'torch', 'tensorflow', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_gap_is_named_and_placed_in_its_phase() -> None:
    golden = json.loads(CASES.read_text())
    rows = golden["cases"]["phases"]["rows"]
    from stormlog.telemetry import telemetry_event_from_record

    events = [telemetry_event_from_record({**golden["base"], **row}) for row in rows]
    report = MemoryAnalyzer().generate_optimization_report(events=events)
    first = report["gap_analysis"][0]
    assert first["classification"] == "transient_spike"
    assert first["phase_attribution"]["phase_path"] == "train / forward"
    found = MemoryAnalyzer().analyze_memory_gaps(events)
    assert isinstance(found[0], GapFinding) and found[0].phase_attribution is None
