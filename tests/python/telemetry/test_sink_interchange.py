"""Our sink and the sink of stormlog 0.4.3 take turns on one directory.

The other package is the real one: STORMLOG_PEER_PYTHON names an interpreter that has it installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import HELPERS

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
SCRIPT = HELPERS / "peer_sink.py"
pytestmark = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON is not set: no interpreter with stormlog 0.4.3 to compare with"
)
SMALL = {
    "rollover_max_events": 40,
    "flush_every_events": 7,
    "rollup_window_seconds": 30,
    "retention_max_files": 50,
}
BOTH_WAYS = pytest.mark.parametrize(("first", "second"), [("ours", "peer"), ("peer", "ours")])


def command(who: str, name: str, root: Path, *args: Any) -> tuple[list[str], dict[str, str]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if who == "ours":
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    python = sys.executable if who == "ours" else str(PEER)
    return [python, str(SCRIPT), name, str(root), *map(json.dumps, args)], environment


def run(who: str, name: str, root: Path, *args: Any) -> Any:
    line, environment = command(who, name, root, *args)
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def killed(who: str, root: Path, session: str, numbers: list[int]) -> None:
    """A process that writes to the sink and is killed while the session runs."""
    line, environment = command(who, "hang", root, session, numbers, SMALL)
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()


def without_times(value: Any) -> Any:
    """A value less the moments at which things were made."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in {"generated_at_ns", "ended_at_ns"}}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_the_peer_is_0_4_3() -> None:
    code = "import importlib.metadata; print(importlib.metadata.version('stormlog'))"
    done = subprocess.run([str(PEER), "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0.4.3"


def test_both_write_the_same_bytes(tmp_path: Path) -> None:
    texts: dict[str, dict[str, str]] = {}
    for who in ("ours", "peer"):
        root = tmp_path / "sink"
        run(who, "write", root, "s", [0, 130], SMALL)
        # Times of closing are all that may differ.
        texts[who] = {path.name: path.read_text() for path in sorted(root.iterdir())}
        manifest = json.loads(texts[who]["manifest.json"])
        assert isinstance(manifest["sessions"][0]["ended_at_ns"], int)
        for name in ("manifest.json", "rollups.json"):
            lines = texts[who][name].splitlines(keepends=True)
            kept = [x for x in lines if '"ended_at_ns"' not in x and '"generated_at_ns"' not in x]
            assert 0 < len(lines) - len(kept) <= 2
            # Open-ended degradation is counted up to the time of closing.
            texts[who][name] = "".join(x for x in kept if '"degraded_time_ns"' not in x)
        shutil.rmtree(root)
    assert texts["ours"].keys() == texts["peer"].keys()
    for name in texts["peer"]:
        assert texts["ours"][name] == texts["peer"][name], name
    assert sorted(texts["ours"]) == [
        "manifest.json",
        "rollups.json",
        *(f"segment-00000{number}.jsonl" for number in range(1, 5)),
    ]


@BOTH_WAYS
def test_one_reads_what_the_other_wrote(tmp_path: Path, first: str, second: str) -> None:
    run(first, "write", tmp_path, "s", [0, 100], SMALL)
    seen = {who: run(who, "read", tmp_path) for who in (first, second)}
    assert seen[second] == seen[first]
    assert len(seen[second]["sessions"]["s"]["times"]) == 100
    assert seen[second]["rollups"]["sessions"][0]["event_count"] == 100, "not stale"


@BOTH_WAYS
def test_rollups_are_equal_field_by_field(tmp_path: Path, first: str, second: str) -> None:
    run(first, "write", tmp_path, "a", [0, 333], SMALL)
    run(first, "write", tmp_path, "b", [333, 400], SMALL)
    on_disk = json.loads((tmp_path / "rollups.json").read_text())
    built = run(second, "build", tmp_path, 30_000_000_000)
    on_disk.pop("generated_at_ns")
    built.pop("generated_at_ns")
    assert built == on_disk
    # And by closing the same directory again.
    run(second, "reopen", tmp_path, SMALL)
    again = json.loads((tmp_path / "rollups.json").read_text())
    again.pop("generated_at_ns")
    assert again == on_disk


@BOTH_WAYS
def test_rollups_without_a_manifest_are_equal(tmp_path: Path, first: str, second: str) -> None:
    """Sessions are inferred then; events are out of order, and one segment is empty."""
    source = tmp_path / "source"
    run(first, "write", source, "s", [0, 90], SMALL)
    results = []
    for who in (first, second):
        root = tmp_path / "sink"
        root.mkdir()
        paths = sorted(source.glob("segment-*.jsonl"))
        for number, path in enumerate(reversed(paths), start=1):
            shutil.copy(path, root / f"segment-00000{number}.jsonl")
        (root / "segment-000009.jsonl").touch()
        run(who, "reopen", root, SMALL)
        rollups = json.loads((root / "rollups.json").read_text())
        results.append((without_times(rollups), (root / "manifest.json").read_text()))
        shutil.rmtree(root)
    assert results[0] == results[1]


@BOTH_WAYS
def test_each_sink_continues_where_the_other_stopped(tmp_path: Path, first: str, second: str) -> None:
    run(first, "write", tmp_path, "a", [0, 50], SMALL)
    run(second, "write", tmp_path, "b", [50, 100], SMALL)
    run(first, "write", tmp_path, "c", [100, 150], SMALL)
    seen = {who: run(who, "read", tmp_path) for who in (first, second)}
    assert seen[first] == seen[second]
    assert [len(seen[first]["sessions"][name]["times"]) for name in "abc"] == [50, 50, 50]
    assert seen[first]["rollups"]["coverage"]["retained_event_count"] == 150
    names = [segment["filename"] for segment in seen[first]["manifest"]["segments"]]
    assert names == [f"segment-00000{number}.jsonl" for number in range(1, 7)]


@BOTH_WAYS
def test_a_killed_writer_was_interrupted(tmp_path: Path, first: str, second: str) -> None:
    killed(first, tmp_path, "dead", [0, 45])
    segments = sorted(tmp_path.glob("segment-*.jsonl"))
    with segments[-1].open("a") as last:
        last.write('{"schema_version": 3, "sess')  # torn in the middle of a write
    run(second, "write", tmp_path, "next", [45, 60], SMALL)
    seen = {who: run(who, "read", tmp_path) for who in (first, second)}
    assert seen[first] == seen[second]
    dead = seen[second]["sessions"]["dead"]
    assert dead["summary"]["status"] == "interrupted"
    assert dead["summary"]["ended_at_ns"] is not None
    assert len(dead["times"]) == 45, "all that was flushed, the torn line left out"
    assert all(segment["closed"] for segment in seen[second]["manifest"]["segments"])
    assert seen[second]["rollups"] is not None


@BOTH_WAYS
def test_a_torn_tail_is_cut_before_going_on(tmp_path: Path, first: str, second: str) -> None:
    run(first, "write", tmp_path, "s", [0, 10], SMALL)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    # As an interrupted re-open may leave it: the session ended, its segment is open and torn.
    manifest["segments"][0]["closed"] = False
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with (tmp_path / "segment-000001.jsonl").open("a") as last:
        last.write('{"torn": ')
    run(second, "write", tmp_path, "s", [10, 15], SMALL)
    seen = {who: run(who, "read", tmp_path) for who in (first, second)}
    assert seen[first] == seen[second]
    assert len(seen[first]["sessions"]["s"]["times"]) == 15
    assert [segment["event_count"] for segment in seen[first]["manifest"]["segments"]] == [15]


@BOTH_WAYS
def test_retention_is_the_same_on_either_side(tmp_path: Path, first: str, second: str) -> None:
    run(first, "write", tmp_path, "a", [0, 200], SMALL)
    assert len(list(tmp_path.glob("segment-*"))) == 5
    pruned = run(second, "write", tmp_path, "b", [200, 245], {**SMALL, "retention_max_files": 3})
    assert pruned["pruned_segment_count"] == 4
    seen = {who: run(who, "read", tmp_path) for who in (first, second)}
    assert seen[first] == seen[second]
    assert len(seen[first]["segments"]) == 3
    assert seen[first]["rollups"]["coverage"]["pruned_segment_count"] == 4


@BOTH_WAYS
def test_a_broken_manifest_is_taken_the_same_way(tmp_path: Path, first: str, second: str) -> None:
    session = {"session_id": "ok", "status": " RUNNING", "source": "t", "started_at_ns": 5, "host": "h"}
    segment = {"filename": "segment-000001.jsonl", "event_count": "3", "closed": [0]}
    broken = {
        "schema_version": "2",
        "format": "",
        "sessions": [None, {"session_id": "x"}, {**session, "pid": "7", "world_size": 0}],
        "segments": [7, {"filename": 5}, {**segment, "size_bytes": -1, "session_id": 9}],
    }
    line = "import json,sys,dataclasses as d; from stormlog.telemetry_sink import *; r=sys.argv[1];"
    line += "m=read_telemetry_sink_manifest(r); print(json.dumps(d.asdict(m)));"
    line += "s=AppendOnlyTelemetrySink(TelemetrySinkConfig(r)); print(open(r+'/manifest.json').read())"
    found = []
    for who in (first, second):
        root = tmp_path / who
        root.mkdir()
        (root / "manifest.json").write_text(json.dumps(broken))
        (root / "segment-000001.jsonl").write_text("{}\n")
        (root / "segment-000004.jsonl").write_text("{}\n\n{}\n{")
        (python, *_), environment = command(who, "read", root)
        run_it = [python, "-c", line, str(root)]
        done = subprocess.run(run_it, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        # The time of the interruption stands on a line of its own.
        found.append([x for x in done.stdout.splitlines() if not x.strip().startswith('"ended_at_ns"')])
    assert found[0] == found[1]
    assert len(found[0]) > 20
