"""Bundles have one answer: the command and the Python package judge, name and time the same things alike."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stormlog import _native
from stormlog._torch.auto_bundle import OOM_FILENAME
from stormlog._torch.cuda_categories import PRECEDENCE, UNEXPLAINED, memory_categories
from stormlog.cuda_native_debug import MEMORY_CATEGORIES_FILENAME, SNAPSHOT_PICKLE_FILENAME
from stormlog.diagnose import run_diagnose

COMMAND = [sys.executable, "-c", "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"]
MB = 1 << 20
REQUEST = 64 * MB


def segment(
    address: int, *blocks: tuple[int, str], stream: int = 0, pool: tuple[int, int] = (0, 0)
) -> dict[str, Any]:
    made, at = [], address
    for size, state in blocks:
        made.append({"address": at, "size": size, "requested_size": size, "state": state, "frames": []})
        at += size
    total = sum(size for size, _ in blocks)
    active = sum(size for size, state in blocks if state != "inactive")
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": pool,
        "is_expandable": False,
        "frames": [],
        "blocks": made,
    }


def snapshot(*segments: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The allocator's state at a request that failed: its last event is the failure."""
    failure = {"action": "oom", "addr": 0, "device_free": MB, "size": REQUEST, "stream": 0, "time_us": 9}
    known = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False, **settings}
    return {
        "segments": list(segments),
        "device_traces": [[{**failure, "frames": []}]],
        "allocator_settings": known,
    }


BASE = 1 << 40
NEXT = BASE + (1 << 34)
CASES = {
    "fragmentation": [
        segment(BASE, (40 * MB, "inactive"), (40 * MB, "active_allocated"), (40 * MB, "inactive")),
    ],
    "walled_off": [
        segment(BASE, (80 * MB, "active_allocated")),
        segment(NEXT, (80 * MB, "inactive"), pool=(0, 1)),
    ],
    "other_streams": [
        segment(BASE, (80 * MB, "active_allocated")),
        segment(NEXT, (80 * MB, "inactive"), stream=7),
    ],
    "pending_frees": [segment(BASE, (80 * MB, "active_pending_free"), (MB, "active_allocated"))],
    "full": [segment(BASE, (80 * MB, "active_allocated"))],
    "refused": [segment(BASE, (80 * MB, "active_allocated"), (80 * MB, "inactive"))],
}


@pytest.mark.parametrize("cause", CASES)
def test_why_a_request_failed_is_the_same_in_a_bundle_and_in_the_command(cause: str, tmp_path: Path) -> None:
    taken = snapshot(*CASES[cause])
    inside = _native.oom.explain_cuda_oom(taken, 0, _native.oom.CudaCounters(device_free_bytes=MB), "2.8.0")
    assert inside is not None and inside.cause == cause
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(taken, protocol=4))
    done = subprocess.run(
        [*COMMAND, "snapshot", str(path), "--json"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout, done.stderr
    outside = json.loads(done.stdout)["oom"]
    assert (outside["cause"], outside["sentence"]) == (inside.cause, inside.sentence)
    assert outside["request_bytes"] == inside.requested_bytes == REQUEST
    assert outside["usable_free_bytes"] == inside.usable_free_bytes
    assert outside["largest_usable_free_bytes"] == inside.largest_usable_free_bytes


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.8.0", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("2.9.1+cu130", "PYTORCH_ALLOC_CONF=expandable_segments:True"),
        (None, "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.9)"),
    ],
)
def test_advice_has_the_variable_of_the_recorded_release(version: str | None, words: str) -> None:
    taken = snapshot(*CASES["fragmentation"])
    found = _native.oom.explain_cuda_oom(taken, 0, _native.oom.CudaCounters(), version)
    assert found is not None and found.remedies[0] == words
    expandable = snapshot(*CASES["fragmentation"], expandable_segments=True)
    found = _native.oom.explain_cuda_oom(expandable, 0, _native.oom.CudaCounters(), version)
    assert found is not None and "ALLOC_CONF" not in "".join(found.remedies)


def test_a_request_of_unknown_size_is_not_judged() -> None:
    assert _native.oom.explain_cuda_oom({}, 0, _native.oom.CudaCounters(), None) is None


def test_gpu_memory_has_one_vocabulary() -> None:
    words = set(_native.oom.GPU_MEMORY_CATEGORIES)
    assert words >= {*PRECEDENCE, UNEXPLAINED}
    taken = snapshot(
        segment(BASE, (2 * MB, "active_allocated"), (MB, "active_pending_free")),
        segment(NEXT, (2 * MB, "active_allocated"), pool=(0, 1)),
        segment(NEXT + (1 << 34), (4 * MB, "active_allocated"), stream=3),
    )
    found = memory_categories(taken, {"device_index": 0}, 4 * MB)["categories"]
    assert set(found) == {"unknown", "awaiting_free", "graph_pools", "workspaces"} <= words


def test_the_files_of_a_cuda_bundle_have_the_names_the_command_reads() -> None:
    assert (OOM_FILENAME, MEMORY_CATEGORIES_FILENAME, SNAPSHOT_PICKLE_FILENAME) == (
        _native.oom.CUDA_OOM_FILE,
        _native.oom.CUDA_CATEGORIES_FILE,
        _native.oom.CUDA_SNAPSHOT_FILE,
    )


def test_an_interval_without_an_event_has_what_held_before() -> None:
    from stormlog.cpu_profiler import CPUMemoryTracker

    tracker = CPUMemoryTracker(sampling_interval=0.05)
    tracker.start_tracking()
    try:
        while len(tracker.get_events()) < 4:
            time.sleep(0.01)
    finally:
        tracker.stop_tracking()
    times = tracker.get_memory_timeline(interval=0.01)["timestamps"]
    steps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) > 4 and max(steps) < 0.0101, steps


def test_a_diagnosis_from_outside_and_from_inside_is_the_same_bundle(tmp_path: Path) -> None:
    folder = {"outside": tmp_path / "outside", "inside": tmp_path / "inside"}
    code = "import sys; from stormlog._entry import gpumemprof; sys.exit(gpumemprof())"
    flags = ["--duration", "0.6", "--interval", "0.05", "--output", str(folder["outside"])]
    before = os.umask(0)
    try:
        subprocess.run([sys.executable, "-c", code, "diagnose", *flags], check=False, timeout=60)
        run_diagnose(str(folder["inside"]), None, 0.6, 0.05, "gpumemprof diagnose")
    finally:
        os.umask(before)
    found = {}
    for who, path in folder.items():
        assert path.stat().st_mode & 0o777 == 0o700, who
        files = {file.name: json.loads(file.read_text()) for file in path.iterdir()}
        report, manifest = files["report.json"], files["manifest.json"]
        times = files["telemetry_timeline.json"]["timestamps"]
        steps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert len(steps) > 4 and steps == pytest.approx([0.05] * len(steps), abs=1e-5), who
        found[who] = {
            "files": sorted(files),
            "manifest": sorted(manifest),
            "listed": sorted(manifest["files"]),
            "artifacts": sorted(report["artifacts"], key=str),
            "metrics": sorted(report["metrics"]),
            "payload": sorted(report["payload"]),
            "flags": sorted(report["payload"]["risk_flags"]),
            "summary": sorted(files["diagnostic_summary.json"]),
        }
    assert found["outside"] == found["inside"]
