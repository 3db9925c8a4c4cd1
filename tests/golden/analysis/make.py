"""What stormlog 0.4.3 makes of some recordings: `PEER_PYTHON make.py > cases.json`.

Run by an interpreter that has stormlog 0.4.3. Each case is a base record, rows of what differs from it, and
the results of 0.4.3's own functions; the Rust tests build the same events and must come to the same results.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict
from typing import Any

from stormlog.collective_attribution import attribute_collective_memory
from stormlog.distributed_analysis import summarize_cross_rank_analysis
from stormlog.gap_analysis import analyze_hidden_memory_gaps
from stormlog.phases import PhaseReplayIndex, phase_attribution_to_payload
from stormlog.telemetry import telemetry_event_from_record
from stormlog.utils import format_bytes

GIB = 2**30
MIB = 2**20
START = 1_700_000_000_000_000_000
STEP = 100_000_000
THRESHOLDS = {
    "gap_ratio_threshold": 0.05,
    "gap_spike_zscore": 2.0,
    "gap_drift_r_squared": 0.6,
    "gap_fragmentation_ratio": 0.3,
}
SUPPORTS = (
    *("allocator_allocated", "allocator_reserved", "allocator_active", "allocator_inactive"),
    *("device_used", "device_free", "device_total", "native_allocator_history"),
    *("fragmentation_analysis", "allocator_attribution", "bounded_profiling"),
)
CAPABILITIES = {
    "backend": "cuda",
    "telemetry_collector": "stormlog.cuda_tracker",
    "sampling_source": "torch.cuda",
    **{f"supports_{name}": True for name in SUPPORTS},
}
BASE: dict[str, Any] = {
    "schema_version": 4,
    "session_id": "s-1",
    "timestamp_ns": START,
    "event_type": "sample",
    "collector": "stormlog.cuda_tracker",
    "sampling_interval_ms": 100,
    "pid": 4242,
    "host": "node-1",
    "job_id": None,
    "rank": 0,
    "local_rank": 0,
    "world_size": 1,
    "device_id": 0,
    "allocator_allocated_bytes": 8 * GIB,
    "allocator_reserved_bytes": 10 * GIB,
    "allocator_active_bytes": None,
    "allocator_inactive_bytes": None,
    "allocator_change_bytes": 0,
    "device_used_bytes": 10 * GIB,
    "device_free_bytes": None,
    "device_total_bytes": 80 * GIB,
    "context": None,
    "metadata": {"memory_capabilities": CAPABILITIES},
}
Rows = list[dict[str, Any]]


def series(count: int, gap: Any, **more: Any) -> Rows:
    """Samples a tenth of a second apart whose gap is what `gap` says."""
    rows = []
    for index in range(count):
        row = {
            "timestamp_ns": START + index * STEP + more.get("start", 0),
            "device_used_bytes": 10 * GIB + int(gap(index)),
        }
        if "rank" in more:
            row.update(rank=more["rank"], local_rank=more["rank"], world_size=more["world"], job_id="job")
        if "inactive" in more:
            row["allocator_inactive_bytes"] = int(more["inactive"](index))
        if "total" in more:
            row["device_total_bytes"] = more["total"]
        rows.append(row)
    return rows


def phase(
    at: int, action: str, path: list[str], sequence: int, rank: int = 0, thread: int = 1
) -> dict[str, Any]:
    """One boundary of a phase."""
    scope = {
        "action": action,
        "name": path[-1],
        "path": path,
        "depth": len(path),
        "scope_id": f"s-1:{sequence}",
        "parent_scope_id": None,
        "thread_id": thread,
        "thread_name": f"thread-{thread}",
        "sequence": sequence,
    }
    return {
        "timestamp_ns": START + at * STEP,
        "event_type": f"phase_{action}",
        "rank": rank,
        "metadata": {"memory_capabilities": CAPABILITIES, "phase_scope": scope},
    }


def cases() -> dict[str, Rows]:
    """Every case by name."""
    rng = random.Random(7)
    found: dict[str, Rows] = {}
    found["steady_gap"] = series(60, lambda i: 5 * GIB)
    found["noisy_gap"] = series(200, lambda i: 5 * GIB + rng.gauss(0, 50 * MIB))
    found["drifting_gap"] = series(80, lambda i: GIB + i * 90 * MIB + rng.gauss(0, 100 * MIB))
    found["weak_drift"] = series(50, lambda i: 5 * GIB + i * 18 * MIB + rng.gauss(0, 150 * MIB))
    found["short_drift"] = series(6, lambda i: 5 * GIB + i * 20 * MIB + rng.gauss(0, 25 * MIB))
    found["one_spike"] = series(60, lambda i: 9 * GIB if i == 30 else 2 * GIB + rng.randint(0, 9) * MIB)
    found["two_spikes_without_spread"] = series(40, lambda i: 9 * GIB if i in (10, 30) else 0)
    found["negative_gap"] = series(40, lambda i: -5 * GIB + rng.gauss(0, 90 * MIB))
    found["fragmented"] = series(
        40, lambda i: 5 * GIB + rng.gauss(0, 9 * MIB), inactive=lambda i: (4 + 0.03 * i) * GIB
    )
    found["small_gap"] = series(40, lambda i: GIB + rng.gauss(0, 9 * MIB))
    found["too_few"] = series(2, lambda i: 9 * GIB)
    found["no_device_size"] = series(40, lambda i: 9 * GIB if i == 20 else GIB + i % 4, total=None)
    marked = series(60, lambda i: 6 * GIB if i in (30, 31) else GIB + rng.randint(0, 9) * MIB)
    marked[29]["context"] = "ncclAllReduce"
    marked[32]["metadata"] = {"memory_capabilities": CAPABILITIES, "op": {"names": ["all-gather"]}}
    found["marked_spike"] = marked
    world = []
    for rank in range(4):
        rows = series(
            80,
            lambda i, r=rank: (
                (5 * GIB if i in (20, 21, 50) else GIB) + rng.randint(0, 20) * MIB + (r == 2 and i > 60) * GIB
            ),
            rank=rank,
            world=4,
            start=rank * 3_000_000,
        )
        rows[50]["context"] = "all_reduce"
        world += rows
    found["four_ranks"] = sorted(world, key=lambda row: row["timestamp_ns"])
    late = []
    for rank, jump in ((0, 30), (1, 25), (3, 31)):
        rows = series(
            60, lambda i, j=jump: 4 * GIB if i >= j else i * MIB, rank=rank, world=5, start=rank * 700_000_000
        )
        late += rows
    found["late_and_missing_ranks"] = [*late, {"event_type": "stop", "timestamp_ns": START + 100 * STEP}]
    found["two_ranks_no_spike"] = series(20, lambda i: GIB, rank=0, world=2) + series(
        1, lambda i: GIB, rank=1, world=2
    )
    phased = series(60, lambda i: 9 * GIB if i in (30, 45) else 2 * GIB + rng.randint(0, 9) * MIB)
    phased += [
        phase(5, "enter", ["train"], 1),
        phase(25, "enter", ["train", "forward"], 2),
        phase(35, "exit", ["train", "forward"], 2),
        phase(40, "enter", ["load"], 4, thread=2),
        phase(50, "exit", ["load"], 4, thread=2),
    ]
    phased[44]["context"] = phased[31]["context"] = "barrier"
    found["phases"] = sorted(phased, key=lambda row: row["timestamp_ns"])
    return found


def gaps(events: Any, phases: Any) -> Any:
    """Hidden gaps, as 0.4.3 finds them."""
    results = analyze_hidden_memory_gaps(events, THRESHOLDS, format_bytes, {}, phases)
    return [
        {**asdict(found), "phase_attribution": phase_attribution_to_payload(found.phase_attribution)}
        for found in results
    ]


def collective(events: Any, phases: Any, preset: str) -> Any:
    """Collective intervals, as 0.4.3 finds them."""
    results = attribute_collective_memory(events, preset=preset, phase_resolver=phases)
    return [
        {**asdict(found), "phase_attribution": phase_attribution_to_payload(found.phase_attribution)}
        for found in results
    ]


def main() -> None:
    """Write all cases to standard output."""
    out: dict[str, Any] = {"base": BASE, "cases": {}}
    for name, rows in cases().items():
        events = [telemetry_event_from_record({**BASE, **row}) for row in rows]
        phases = PhaseReplayIndex.from_events(events)
        out["cases"][name] = {
            "rows": rows,
            "gap_analysis": gaps(events, phases),
            "collective": {
                preset: collective(events, phases, preset) for preset in ("low", "medium", "high")
            },
            "cross_rank": summarize_cross_rank_analysis(events, phase_resolver=phases),
        }
    json.dump(out, sys.stdout, indent=None, separators=(",", ":"))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
