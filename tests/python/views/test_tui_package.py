"""`stormlog.tui`: inputs that are hostile or ours alone, and the way to the native screen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import stormlog.tui
from stormlog import CPUMemoryTracker
from stormlog.telemetry import telemetry_event_from_record
from stormlog.tui import distributed_diagnostics as diagnostics
from stormlog.tui import profiles, workloads
from stormlog.tui.distributed_diagnostics import build_distributed_model, load_distributed_artifacts


def record(**changes: Any) -> dict[str, Any]:
    return {
        "timestamp": 1_700_000_000.5,
        "event_type": "sample",
        "memory_allocated": 5,
        "memory_reserved": 9,
        "memory_change": 0,
        "total_memory": 100,
        "session_id": "s",
        **changes,
    }


def test_the_older_name_is_the_same_module() -> None:
    assert import_module("gpumemprof.tui.distributed_diagnostics") is diagnostics


def test_a_claimed_world_of_any_size_is_listed_in_bounds(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(json.dumps([record(rank=3, local_rank=3, world_size=2**62)]))
    loaded = load_distributed_artifacts([path])
    model = build_distributed_model(loaded.events, {2, 3})
    assert model.present_ranks == [3]
    assert model.missing_ranks == [2]
    assert any(str(2**62) in warning for warning in model.warnings)


def test_a_range_of_ranks_is_not_walked() -> None:
    assert diagnostics.parse_rank_filter(f"1-{10**30}", [0, 5, 9]) == {5, 9}


def test_pipes_loops_and_deep_nesting_are_warnings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "deep_events.json").write_text("[" * 100_000)
    (tmp_path / "huge").mkdir()
    name = f"rank{10**40}"
    (tmp_path / "huge" / name).mkdir()
    (tmp_path / "huge" / name / "telemetry_timeline.json").write_text(
        json.dumps({"timestamps": [1e300], "allocated": [1]})
    )
    paths = [
        tmp_path / "events.json",
        tmp_path / "loop.json",
        tmp_path / "deep_events.json",
        tmp_path / "huge",
    ]
    loaded = load_distributed_artifacts(paths)
    assert loaded.sessions == []
    assert loaded.selected_session_id is None
    assert len(loaded.warnings) == 5, loaded.warnings


def test_rows_of_a_damaged_csv_are_counted_beyond_the_first(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("timestamp_ns,event_type\n" + "x,sample\n" * 500)
    warnings = load_distributed_artifacts([path]).warnings
    assert len(warnings) == 101
    assert warnings[-1].endswith("400 more rows")


def test_a_changed_event_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(json.dumps([record(timestamp=1_700_000_000.0 + at) for at in range(3)]))
    loaded = load_distributed_artifacts([path])
    assert build_distributed_model(loaded.events).indicators == []
    event = loaded.events[1]
    event.event_type = "critical"
    event.context = "changed"
    assert [one.details for one in build_distributed_model(loaded.events).indicators] == ["changed"] * 2
    assert loaded.sessions[0].events[1].event_type == "sample", "a list of its own"
    assert build_distributed_model([telemetry_event_from_record(record())]).rows[0].samples == 1


def test_a_session_that_we_recorded_is_loaded(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.005)
    with tracker:
        tracker._add_event("sample", 0, "inside")
    tracker.export_events(tmp_path / "tracked.json", "json")
    loaded = load_distributed_artifacts([tmp_path])
    assert loaded.warnings == []
    model = build_distributed_model(loaded.events)
    assert [row.availability for row in model.rows] == ["present"]
    assert 0 in model.markers_by_rank


def test_run_app_opens_the_native_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stormlog"
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/said\nexit "${{CODE:-0}}"\n')
    program.chmod(0o755)
    monkeypatch.setattr("stormlog._entry.command", lambda: str(program))
    said = tmp_path / "said"
    stormlog.tui.run_app(["--framework", "pytorch"])
    assert said.read_text() == "tui|--framework|pytorch|"
    monkeypatch.setattr(sys, "argv", ["prog"])
    stormlog.tui.run_app()
    assert said.read_text() == "tui|"
    with pytest.raises(SystemExit) as left:
        stormlog.tui.run_app(["query", "runs"])
    assert (left.value.code, said.read_text()) == (0, "query|runs|")
    monkeypatch.setenv("CODE", "3")
    with pytest.raises(SystemExit) as left:
        stormlog.tui.run_app([])
    assert left.value.code == 3


def test_the_package_imports_no_framework() -> None:
    code = (
        "import stormlog.tui.distributed_diagnostics, stormlog.tui.profiles, stormlog.tui.workloads, sys;"
        "assert not {'torch', 'tensorflow', 'textual', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sample_workload_is_summed_up() -> None:
    class Profiler:
        def profile_function(self, function: Any) -> None:
            self.value = function()

        def get_summary(self) -> dict[str, Any]:
            return {"snapshots_collected": 2, "peak_memory_usage": self.value}

    summary = workloads.run_cpu_sample_workload(Profiler)
    assert summary["peak_memory_usage"] == sum(range(500_000))
    assert workloads.format_cpu_summary(summary).splitlines()[0] == "Snapshots collected: 2"


def test_profiles_of_this_process_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        {"name": "a", "calls": 4, "total_duration": 2.0, "total_memory_used": 8.0, "last_timestamp": 1.0},
        {"name": "b", "calls": 0, "peak_memory": 3.0, "last_timestamp": 9.0},
    ]
    context = "stormlog.tensorflow.context_profiler"
    monkeypatch.setattr(f"{context}.get_profile_summaries", lambda limit=None: found)
    rows = profiles.fetch_tensorflow_profiles()
    assert [(row.name, row.delta_mb, row.duration_ms) for row in rows] == [("b", 0.0, 0.0), ("a", 2.0, 500.0)]
    assert len(profiles.fetch_tensorflow_profiles(limit=1)) == 1
    monkeypatch.setattr(f"{context}.get_profile_summaries", lambda limit=None: 1 / 0)
    assert profiles.fetch_tensorflow_profiles() == []
    assert profiles.clear_pytorch_profiles()
