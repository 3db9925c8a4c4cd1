"""Time and memory to load one large snapshot: this reader, and CPython's pickle.load, on the same file.

    python read_speed.py RECORDING.pickle.gz [MEGABYTES] [--python-megabytes N]

CPython needs many times the file in memory, so it gets a smaller file by default; rates are per byte.
`cargo build --release -p stormlog-torch --examples` first; CARGO_TARGET_DIR is respected.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

PICKLE_LOAD = """
import json, pickle, resource, sys, time
before = resource.getrusage(resource.RUSAGE_SELF)
start = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
seconds = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "seconds": round(seconds, 3),
    "cpu_seconds": round(usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime, 3),
    "events": sum(len(trace) for trace in snapshot["device_traces"]),
    "peak_mb": round(usage.ru_maxrss * 1.024 / 1000),
}))
"""


def measure(command: list[str], file: Path) -> dict[str, float]:
    """Best of three by processor time, which other work on the machine disturbs least."""
    results = []
    for _ in range(3):
        before = os.times()
        output = subprocess.run([*command, str(file)], check=True, capture_output=True, text=True).stdout
        after = os.times()
        result: dict[str, float] = json.loads(output)
        result.setdefault(
            "cpu_seconds",
            round(
                after.children_user + after.children_system - before.children_user - before.children_system, 3
            ),
        )
        results.append(result)
    best = min(results, key=lambda result: result["cpu_seconds"])
    size = file.stat().st_size / 1e6
    best["file_mb"] = round(size)
    best["mb_per_s"] = round(size / best["seconds"])
    best["mb_per_cpu_s"] = round(size / best["cpu_seconds"])
    best["peak_over_file"] = round(best["peak_mb"] / size, 2)
    return best


def main() -> None:
    """Make the files, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recording", type=Path)
    parser.add_argument("megabytes", type=float, nargs="?", default=1000)
    parser.add_argument("--python-megabytes", type=float, default=100)
    arguments = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    example = target / "release" / "examples" / "load"
    with tempfile.TemporaryDirectory() as directory:
        make = [sys.executable, str(HERE / "make_snapshot.py"), str(arguments.recording)]
        large, small = Path(directory, "large.pickle"), Path(directory, "small.pickle")
        subprocess.run([*make, str(large), str(arguments.megabytes)], check=True)
        subprocess.run([*make, str(small), str(arguments.python_megabytes)], check=True)
        rows = {
            "stormlog": measure([str(example)], large),
            "stormlog (small file)": measure([str(example)], small),
            "pickle.load (small file)": measure([sys.executable, "-c", PICKLE_LOAD], small),
        }
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
