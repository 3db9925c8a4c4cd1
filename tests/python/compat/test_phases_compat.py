"""Phases replayed beside the real stormlog 0.4.3, and what a tracker recorded replayed by ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS
from stormlog import CPUMemoryTracker, load_telemetry_events
from stormlog.phases import PhaseReplayIndex, summarize_phase_attribution

PEER = os.environ.get("STORMLOG_PEER_PYTHON")


def run(python: str, folder: Path) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, str(HELPERS / "peer_phases.py")]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.mark.skipif(not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3")
def test_replay_and_blame_are_the_same_to_the_letter(tmp_path: Path) -> None:
    assert PEER
    theirs, ours = run(PEER, tmp_path), run(sys.executable, tmp_path)
    assert ours["small"] == theirs["small"]
    for seed, (mine, other) in enumerate(zip(ours["stories"], theirs["stories"], strict=True)):
        for part in other:
            assert mine[part] == other[part], (seed, part)
    assert any(span for story in ours["stories"] for spans in story["spans"] for span in spans)


def test_recorded_phases_are_replayed(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(sampling_interval=0.005)
    with tracker:
        tracker.enter_phase("train")
        with tracker.phase("forward"):
            tracker._add_event("sample", 0, "inside")
        left_open = tracker.enter_phase("backward")
        tracker._add_event("sample", 0, "later")
    assert not left_open.closed
    tracker.export_events(tmp_path / "events.json", "json")
    events = load_telemetry_events(tmp_path / "events.json")
    index = PhaseReplayIndex.from_events(events)
    spans = index.spans_for(session_id=events[0].session_id)
    assert {(span.path, span.synthetic_end) for span in spans} >= {
        (("train", "forward"), False),
        (("train", "backward"), True),
    }
    found = {event.context: summarize_phase_attribution(index.resolve_for_event(event)) for event in events}
    assert found["inside"] == "train / forward"
    assert found["later"] == "train / backward"
