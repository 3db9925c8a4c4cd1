"""Trackers, recorder, phases and utilities beside the real stormlog 0.4.3, as in test_compat.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS
from stormlog import CPUMemoryTracker

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
pytestmark = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3"
)

# What ours say beyond 0.4.3's, and where it is on purpose that they differ.
MORE_STATISTICS = {
    "alert_count",
    "memory_limit",
    "seconds_to_limit",
    "oom_flight_recorder_enabled",
    "last_oom_dump_path",
}
KNOWN_NOW = {"device_free_bytes": "the room left", "device_total_bytes": "the limit that holds"}


def run(python: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [python, str(HELPERS / "peer_tracker.py"), str(folder)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    assert PEER
    root = tmp_path_factory.mktemp("tracker-compat")
    return run(PEER, root / "theirs"), run(sys.executable, root / "ours")


Both = tuple[dict[str, Any], dict[str, Any]]


def test_phases_are_the_same_to_the_letter(results: Both) -> None:
    theirs, ours = results
    assert ours["phases"] == theirs["phases"]


def test_bundles_are_the_same_to_the_letter(results: Both) -> None:
    theirs, ours = results
    assert ours["bundle"] == theirs["bundle"]


@pytest.mark.parametrize(
    "name", ["format", "precision", "convert", "unit", "advice", "health", "pauses", "system"]
)
def test_utilities_are_the_same(results: Both, name: str) -> None:
    theirs, ours = results
    assert ours["small"][name] == theirs["small"][name]


def test_classification_equals_that_of_0_4_3(results: Both) -> None:
    theirs, ours = results
    assert ours["small"]["classified"] == theirs["small"]["classified"]


def test_the_profiler_has_the_same_shapes(results: Both) -> None:
    theirs, ours = results
    assert ours["profiler"] == theirs["profiler"]


def test_the_tracker_has_every_statistic(results: Both) -> None:
    theirs, ours = results[0]["tracker"], results[1]["tracker"]
    assert set(ours["statistics"]) - set(theirs["statistics"]) == MORE_STATISTICS
    for key, kind in theirs["statistics"].items():
        assert ours["statistics"][key] == kind, key
    assert set(theirs["before"]["statistics"]) <= set(ours["before"]["statistics"])
    assert ours["before"]["stats"] == theirs["before"]["stats"]
    assert ours["stats"] == theirs["stats"]


def test_events_have_the_same_shape_and_words(results: Both) -> None:
    theirs, ours = results[0]["tracker"], results[1]["tracker"]
    for same in ("event", "metadata", "scope", "csv", "order", "timeline", "summary", "errors"):
        assert ours[same] == theirs[same], same
    # Memory may also shrink while one of them looks, and only ours ends alerts.
    optional = {"deallocation", "warning", "recovered"}
    words = [{tuple(pair) for pair in side["texts"] if pair[0] not in optional} for side in (theirs, ours)]
    assert words[0] == words[1]
    for key, kind in theirs["record"].items():
        assert ours["record"][key] == kind or key in KNOWN_NOW, key


def test_its_tools_read_our_bundles_and_exports(tmp_path: Path) -> None:
    assert PEER
    tracker = CPUMemoryTracker(
        0.005, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path / "dumps"), job_id="j"
    )
    with tracker, tracker.phase("x"):
        path = tracker.handle_exception(MemoryError(), context="here")
    assert path is not None
    tracker.export_events(tmp_path / "events.json", "json")
    code = (
        "import json, sys; import stormlog.query as query\n"
        "from stormlog.telemetry import load_telemetry_events\n"
        "folder, bundle = sys.argv[1:]\n"
        "row = query.open([folder + '/dumps']).list_oom_bundles()[0]\n"
        "print(json.dumps([row.bundle_path, row.reason, row.backend, row.event_count,\n"
        "    len(load_telemetry_events(bundle + '/events.json')),\n"
        "    len(load_telemetry_events(folder + '/events.json'))]))\n"
    )
    done = subprocess.run(
        [PEER, "-c", code, str(tmp_path), path], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found, reason, backend, count, in_bundle, exported = json.loads(done.stdout)
    assert (found, reason, backend) == (path, "builtins.MemoryError", "cpu")
    assert count == in_bundle and exported == len(tracker.events)
