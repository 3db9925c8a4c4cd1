"""Analysis from Python: beside the real stormlog 0.4.3, and on what a program has at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch_stand_in
from places import GOLDEN, HELPERS
from stormlog import (
    CPUMemoryTracker,
    GapFinding,
    MemoryAnalyzer,
    MemoryTracker,
    load_telemetry_events,
    load_telemetry_sessions,
)
from stormlog._telemetry.event_list import untouched
from stormlog.distributed_analysis import summarize_cross_rank_analysis
from stormlog.timeline_markers import derive_timeline_markers

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
CASES = GOLDEN / "analysis" / "cases.json"
# Lists 0.4.3 has in the arbitrary order of a set.
SETS = {"affected_functions", "memory_intensive_functions"}


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def run(python: str, folder: Path) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, "-W", "ignore", str(HELPERS / "peer_analysis.py"), str(CASES)]
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


def report_of(path: Path) -> dict[str, Any]:
    code = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"
    command = [sys.executable, "-c", code, "analyze", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_retries_of_an_allocator_get_from_the_sample_into_the_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = torch_stand_in.make()
    counts = {"num_alloc_retries": 0, "num_ooms": 0}
    plain = torch.cuda.memory_stats
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {**plain(device), **counts})
    monkeypatch.setitem(sys.modules, "torch", torch)
    tracker = MemoryTracker(device=0, sampling_interval=0.005)
    tracker.start_tracking()
    until(lambda: len(tracker.get_events("sample")) >= 3)
    counts["num_alloc_retries"] = 4
    seen = len(tracker.get_events("sample"))
    until(lambda: len(tracker.get_events("sample")) >= seen + 3)
    tracker.stop_tracking()
    samples = tracker.get_events("sample")
    assert [(event.metadata or {})["num_alloc_retries"] for event in (samples[0], samples[-1])] == [0, 4]
    tracker.export_events(str(tmp_path / "events.json"), "json")
    found = report_of(tmp_path / "events.json")["findings"]
    retries = [finding for finding in found if finding["kind"] == "allocator_retries"]
    assert [finding["metrics"]["retries_while_recorded"] for finding in retries] == [4]


def test_loaded_events_and_their_objects_are_judged_alike(tmp_path: Path) -> None:
    golden = json.loads(CASES.read_text())
    for name, case in golden["cases"].items():
        rows = [{"session_id": "one", **golden["base"], **row} for row in case["rows"]]
        file = tmp_path / f"{name}_events.json"
        file.write_text(json.dumps(rows))
        for number in range(len(load_telemetry_sessions(file))):
            loaded = load_telemetry_sessions(file)[number].events
            touched = list(load_telemetry_sessions(file)[number].events)
            assert untouched(loaded) is not None
            native = MemoryAnalyzer().generate_optimization_report(events=loaded)
            python = MemoryAnalyzer().generate_optimization_report(events=touched)
            compare(native, python, name)
            assert summarize_cross_rank_analysis(loaded) == summarize_cross_rank_analysis(touched)


def test_an_object_that_was_changed_is_seen(tmp_path: Path) -> None:
    golden = json.loads(CASES.read_text())
    rows = [{"session_id": "one", **golden["base"], **row} for row in golden["cases"]["phases"]["rows"]]
    file = tmp_path / "events.json"
    file.write_text(json.dumps(rows))
    events = load_telemetry_sessions(file)[0].events
    assert MemoryAnalyzer().analyze_memory_gaps(events)
    for event in events:
        event.device_used_bytes = event.allocator_reserved_bytes
    assert MemoryAnalyzer().analyze_memory_gaps(events) == []
