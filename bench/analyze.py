"""How long analysis takes: analyze.py RANKS EVENTS [STORMLOG]; one file of EVENTS a rank, with a steady gap.

Measures `stormlog analyze` (the command given, else the installed one) and, for one rank, the Python API on
the same file: processor seconds of user and system together, and peak memory. Nothing is asserted.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import make_events

API = (
    "import sys; from stormlog import MemoryAnalyzer, load_telemetry_sessions; "
    "events = load_telemetry_sessions(sys.argv[1])[0].events; "
    "MemoryAnalyzer().generate_optimization_report(events=events)"
)


def write(path: Path, rank: int, ranks: int, count: int) -> None:
    """Samples a tenth of a second apart: a gigabyte outside the allocator, and three more now and then."""
    first = make_events.event("cuda", random.Random(rank), 0)
    first |= {"session_id": f"rank-{rank}", "rank": rank, "local_rank": rank, "world_size": ranks}
    varying = [key for key in first if key.endswith(("_bytes", "_ns")) and first[key] is not None]
    text = json.dumps({key: f"<{key}>" if key in varying else value for key, value in first.items()})
    text = text.replace("%", "%%")
    for key in varying:
        text = text.replace(f'"<{key}>"', f"%({key})d")
    with path.open("w") as file:
        for number in range(count):
            allocated = (10 << 30) + (number * 7919 + rank) % 1000 * (1 << 20)
            hidden = (
                (1 << 30) + (number * 104_729 + rank) % (64 << 20) + (number % 50_000 == 49_999) * (3 << 30)
            )
            reserved = allocated + (1 << 28)
            numbers = dict.fromkeys(varying, 0) | {
                "timestamp_ns": first["timestamp_ns"] + number * 100_000_000,
                "allocator_allocated_bytes": allocated,
                "allocator_reserved_bytes": reserved,
                "allocator_active_bytes": allocated,
                "allocator_inactive_bytes": 1 << 28,
                "device_used_bytes": reserved + hidden,
                "device_free_bytes": make_events.TOTAL - reserved - hidden,
                "device_total_bytes": make_events.TOTAL,
            }
            file.write(text % numbers + "\n")


def measure(name: str, command: list[str]) -> None:
    """Runs a command and says what it took."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    seconds = usage.ru_utime + usage.ru_stime
    print(f"{name}: {seconds:.2f} s of processor, {usage.ru_maxrss / 1024:.0f} MiB")


def main(ranks: int, count: int, stormlog: str) -> None:
    """Makes the files and measures."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            write(Path(folder) / f"events_rank{rank}.jsonl", rank, ranks, count)
        measure("stormlog analyze", [stormlog, "analyze", folder])
        if ranks == 1:
            measure("Python API", [sys.executable, "-c", API, str(Path(folder) / "events_rank0.jsonl")])


main(
    int(sys.argv[1]),
    int(sys.argv[2]),
    sys.argv[3] if len(sys.argv) > 3 else shutil.which("stormlog") or "stormlog",
)
