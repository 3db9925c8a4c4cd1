"""`stormlog.tui` of whichever stormlog this interpreter has, on the same inputs; prints the outcome as JSON.

`python peer_tui.py FOLDER`: run by test_tui_compat.py under 0.4.3 and under ours. Events and artifacts are
drawn from fixed seeds: ranks that are missing, spike, alert and enter phases, unknown counters, files without
sessions, timelines with and without a rank, and inputs that are damaged.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stormlog.telemetry import TelemetryEventV2, telemetry_event_from_record, telemetry_event_to_dict
from stormlog.tui import builders, profiles, workloads
from stormlog.tui.distributed_diagnostics import (
    build_distributed_model,
    load_distributed_artifacts,
    parse_rank_filter,
)

GIB = 1 << 30
START = 1_700_000_000_000_000_000
# Behind these the two releases explain an error in their own words.
OWN_WORDS = re.compile(
    r"(Failed to (?:parse|read) [^:]*?(?:/[^:]*)?: |CSV parse error [^:]*:\d+: )(?:.*)", re.DOTALL
)


def record(
    rng: random.Random, session: str | None, rank: int, world: int, at: int, **more: Any
) -> dict[str, Any]:
    reserved = 10 * GIB + rng.randrange(4) * (1 << 20)
    gap = rng.choice([0, 1 << 20, 2 << 20, 3 << 20])
    found = {
        "schema_version": 2 if session is None else 3,
        "session_id": session,
        "timestamp_ns": START + at * 50_000_000,
        "event_type": "sample",
        "collector": "stormlog.cuda_tracker",
        "sampling_interval_ms": 50,
        "pid": 100 + rank,
        "host": f"node{rank % 2}",
        "job_id": "job-7" if world > 1 else None,
        "rank": rank,
        "local_rank": rank,
        "world_size": world,
        "device_id": rank,
        "allocator_allocated_bytes": 8 * GIB + at * (1 << 20),
        "allocator_reserved_bytes": reserved,
        "allocator_active_bytes": None,
        "allocator_inactive_bytes": None,
        "allocator_change_bytes": 0,
        "device_used_bytes": reserved + gap,
        "device_free_bytes": None,
        "device_total_bytes": 80 * GIB,
        "context": None,
        "metadata": {},
        **more,
    }
    if session is None:
        del found["session_id"]
    return found


def story(seed: int) -> list[dict[str, Any]]:
    """The records of one job: what happens is drawn."""
    rng = random.Random(seed)
    world = rng.choice([1, 2, 4, 5])
    session = None if seed % 5 == 0 else f"session-{seed}"
    records: list[dict[str, Any]] = []
    for rank in range(world):
        if world > 2 and rng.random() < 0.25:
            continue
        number = 0
        spike = rng.choice([None, 20, 20, 21])
        drift = rng.random() < 0.2
        is_split = seed % 6 == 1
        for at in range(rng.choice([3, 12, 40])):
            one = record(rng, session, rank, world, at)
            if spike is not None and spike <= at <= spike + 1:
                one["device_used_bytes"] += rng.choice([5, 9]) * GIB
                one["context"] = rng.choice([None, "nccl all_reduce", "step"])
            if is_split:
                one["allocator_inactive_bytes"] = 6 * GIB
            if drift:
                one["device_used_bytes"] += at * (GIB // 4)
            if rng.random() < 0.05:
                one["event_type"] = rng.choice(["warning", "critical", "error", "peak", " Sample "])
                one["context"] = rng.choice([None, "", "95 % of the device", "barrier"])
            if session is not None and rng.random() < 0.1:
                number += 1
                path = ["train"] if number % 3 else ["train", "forward"]
                kind = "exit" if number % 4 == 0 else "enter"
                scope = {
                    "action": kind,
                    "name": path[-1],
                    "path": path,
                    "depth": len(path),
                    "scope_id": f"{session}:{rank}:{number - (kind == 'exit')}",
                    "parent_scope_id": None,
                    "thread_id": 1,
                    "thread_name": "main",
                    "sequence": number,
                }
                boundary = record(rng, session, rank, world, at)
                boundary.update(event_type=f"phase_{kind}", context=path[-1], metadata={"phase_scope": scope})
                records.append(boundary)
            records.append(one)
    rng.shuffle(records)
    return records


def events(records: list[dict[str, Any]]) -> list[Any]:
    """Events of schema 2 as they are; others as the loaders hand them out."""
    return [
        TelemetryEventV2(**one) if one["schema_version"] == 2 else telemetry_event_from_record(one)
        for one in records
    ]


def unknown_counters(seed: int, *names: str) -> list[Any]:
    """Events of schema 4 in which these counters cannot be known."""
    made = []
    for event in events([one for one in story(seed) if one["schema_version"] == 3]):
        one = telemetry_event_to_dict(event)
        capabilities = dict(one["metadata"]["memory_capabilities"])
        for name in names:
            one[f"{name}_bytes"] = None
            capabilities[f"supports_{name}"] = False
        if "allocator_allocated" in names:
            one["allocator_change_bytes"] = None
        for feature in ("native_allocator_history", "fragmentation_analysis", "allocator_attribution"):
            capabilities[f"supports_{feature}"] = False
        capabilities["supports_bounded_profiling"] = False
        one["metadata"] = {**one["metadata"], "memory_capabilities": capabilities}
        made.append(telemetry_event_from_record(one))
    return made


def write(folder: Path) -> None:
    """The artifacts; the same bytes at every call."""
    rng = random.Random(99)

    def put(name: str, content: Any) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    for rank in range(3):
        put(f"job/r{rank}.json", [record(rng, f"s-{rank}", rank, 3, at) for at in range(12)])
    put("job/again.json", [record(rng, "s-1", 1, 3, at) for at in range(20)])
    put("two.json", [record(rng, f"t-{at % 2}", 0, 1, at) for at in range(6)])
    stop = record(rng, "s-stop", 0, 1, 9, event_type="stop")
    put("stopped_events.json", {"events": [record(rng, "s-stop", 0, 1, 1), stop]})
    flat = [
        {
            "timestamp": 1_700_000_000.25 + at,
            "event_type": "sample",
            "memory_allocated": at << 20,
            "memory_reserved": 9 << 20,
            "memory_change": 0,
            "total_memory": 80 * GIB,
            "device_id": 0,
        }
        for at in range(4)
    ]
    put("flat/a_events.json", flat)
    put("flat/b_track.json", flat[2:])
    put("flat/lines_events.jsonl", "\n".join(json.dumps(one) for one in flat))
    put("flat/unrelated.json", flat)
    rows = [record(rng, "s-csv", 1, 2, at) for at in range(5)]
    for at, row in enumerate(rows):
        # 0.4.3 reads integers of a CSV file as floats: only such moments survive it.
        row["timestamp_ns"] = START + at * 51_200_000
    with (folder / "flat" / "c_events.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "metadata": json.dumps({"step": row["timestamp_ns"] % 7})})
    timeline = {"timestamps": [1.5, 2.0, 2.25], "allocated": [5, 9.7, 7], "reserved": [10, 11, 12, 13]}
    put("diag/plain/telemetry_timeline.json", timeline)
    put("diag/job-Rank_2/telemetry_timeline.json", {**timeline, "reserved": None})
    put("diag/local_rank5/telemetry_timeline.json", {**timeline, "metadata": {"rank": 1, "world_size": 2}})
    put("diag/by_identity/telemetry_timeline.json", {**timeline, "distributed_identity": {"rank": "4"}})
    session = {
        "session_id": "stated",
        "status": "completed",
        "started_at_ns": 5,
        "ended_at_ns": 9,
        "host": "h",
        "pid": 7,
        "job_id": "j",
        "rank": 9,
        "local_rank": 9,
        "world_size": 10,
        "source": "stormlog.diagnose",
    }
    put("stated/telemetry_timeline.json", timeline)
    put("stated/manifest.json", {"session": session})
    put("named/rank1/telemetry_timeline.json", timeline)
    named = {
        "session_id": "by-name",
        "session_status": "Interrupted",
        "created_iso": "2024-05-06T07:08:09.25Z",
    }
    put("named/rank1/manifest.json", named)
    put("odd/rank3/telemetry_timeline.json", timeline)
    put("odd/rank3/manifest.json", {**named, "session_status": "odd"})
    put("bad/events.json", '{"events": [{"timestamp"')
    put("bad/rows_events.csv", "timestamp_ns,event_type\nx,sample\n5,sample\n")
    put("bad/telemetry_timeline.json", {"timestamps": {}, "allocated": [1]})
    put("bad/list/telemetry_timeline.json", [])
    put("bad/none/telemetry_timeline.json", {"timestamps": [], "allocated": []})
    put("bad/cut/telemetry_timeline.json", '{"timestamps": [1')
    put("empty/readme.md", "nothing")
    put("notes.txt", "nothing")


LOADS: dict[str, tuple[list[str], str | None]] = {
    "job": (["job/r0.json", "job/r1.json", "job/r2.json"], None),
    "part of a job": (["job/r0.json", "job/r2.json"], None),
    "named session": (["job/r0.json", "job/r1.json"], "s-1"),
    "unknown session": (["job/r0.json"], "nothing"),
    "one session in two files": (["job/r1.json", "job/again.json"], None),
    "ranks and a file of two sessions": (["job/r0.json", "job/r1.json", "two.json"], None),
    "stopped": (["two.json", "stopped_events.json"], None),
    "flat files": (["flat/a_events.json", "flat/b_track.json", "flat/lines_events.jsonl"], None),
    "a flat file beside a job": (["flat/a_events.json", "job/r0.json", "job/r1.json"], None),
    "a directory": (["flat"], None),
    "csv": (["flat/c_events.csv"], None),
    "timelines": (["diag"], None),
    "one timeline": (["diag/plain/telemetry_timeline.json"], None),
    "ranks before timelines": (["job/r0.json", "diag/plain"], None),
    "stated session": (["stated"], None),
    "named by a manifest": (["named"], None),
    "odd state": (["odd"], None),
    "damaged": (["bad"], None),
    "nothing": (["empty", "notes.txt", "missing"], None),
    "no paths": ([], None),
}

FILTERS = [
    *("", "all", " * ", "0", "0,2", "4-7", "0,2,4-7,99", ",,1,", " 1 - 3 ", "2-2", "ALL"),
    *("7-4", "-1", "3-", "x", "1-x", "1-2-3", "1.5", "+1", "1_0", "'"),
]


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return [plain(item) for item in value]


def outcome(call: Any) -> Any:
    try:
        return plain(call())
    except ValueError as error:
        return {"error": type(error).__name__, "text": str(error)}


def loaded(folder: Path, names: list[str], session: str | None) -> Any:
    result = load_distributed_artifacts([folder / name for name in names], session)
    model = build_distributed_model(result.events)
    found = plain(result)
    found["model"] = plain(model)
    for warnings in [found["warnings"], *(one["warnings"] for one in found["sessions"])]:
        warnings[:] = [OWN_WORDS.sub(r"\1…", text) for text in warnings]
    return found


def tables() -> dict[str, Any]:
    system = {
        "platform": "Linux",
        "python_version": "3.11.2 (main)",
        "cuda_available": True,
        "cuda_version": "12",
    }
    gpu = {
        "device_name": "H200",
        "total_memory": 80 * GIB,
        "allocated_memory": GIB,
        "reserved_memory": 2 * GIB,
    }
    devices = {"devices": [{"name": "/GPU:0", "current_memory_mb": 5.25}], "total_memory": 10}
    empty: dict[str, Any] = {}
    markdown = builders.build_system_markdown
    lines: list[dict[str, Any]] = [
        {"timestamps": [1.0, 3.5], "allocated": [5, 1 << 20], "reserved": [None, 7]},
        {"timestamps": [1.0], "allocated": [None]},
        {"timestamps": [], "allocated": [1]},
        {"timestamps": [2.0], "allocated": [3], "reserved": [1 << 30]},
        empty,
    ]
    results = SimpleNamespace(duration=1.5, peak_memory_mb=None, average_memory_mb=2.25, snapshots=[1, 2])
    change = {"memory_change_from_baseline": -5 << 20, "peak_memory_usage": 3 << 30}
    return {
        "system": markdown(system_info=system, gpu_info=gpu, tf_system_info=empty, tf_gpu_info=devices),
        "bare": markdown(system_info=empty, gpu_info=empty, tf_system_info=empty, tf_gpu_info=empty),
        "pytorch": [builders.build_pytorch_stats_rows(info) for info in (gpu, empty)],
        "tensorflow": [builders.build_tensorflow_stats_rows(info) for info in (devices, empty)],
        "timelines": [builders.build_legacy_timeline_rows(line) for line in lines],
        "texts": [
            workloads.format_pytorch_summary({**change, "total_function_calls": 3}),
            workloads.format_pytorch_summary({}),
            workloads.format_cpu_summary({**change, "snapshots_collected": 2}),
            workloads.format_cpu_summary({}),
            workloads.format_tensorflow_results(results),
            workloads.format_tensorflow_results(object()),
        ],
        "profiles": [profiles.fetch_pytorch_profiles(), profiles.fetch_tensorflow_profiles()],
        "row": [one.name for one in dataclasses.fields(profiles.ProfileRow)],
    }


def main(folder: Path) -> dict[str, Any]:
    write(folder)
    stories = {str(seed): story(seed) for seed in range(16)}
    return {
        "models": {name: plain(build_distributed_model(events(one))) for name, one in stories.items()},
        "selected": [plain(build_distributed_model(events(story(7)), {0, 3, 77})) for _ in range(1)],
        "unknown": [
            plain(build_distributed_model(unknown_counters(2, "allocator_reserved"))),
            plain(build_distributed_model(unknown_counters(3, "allocator_allocated", "allocator_reserved"))),
            plain(build_distributed_model([])),
        ],
        "loads": {
            name: outcome(lambda names=names, session=session: loaded(folder, names, session))
            for name, (names, session) in LOADS.items()
        },
        "filters": {one: outcome(lambda one=one: parse_rank_filter(one, [0, 1, 2, 5, 7])) for one in FILTERS},
        "tables": plain(tables()),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
