"""Other tools for the same file, side by side: `pickle.load`, torch's `_memory_viz`, Mosaic, and this one.

    python compare.py [--large FILE] [--memory-viz .../torch/cuda/_memory_viz.py] [--mosaic CHECKOUT]
                      [RECORDING.pickle.gz...]

Time and memory are measured on `--large` (make one with make_snapshot.py), each tool in a process of its
own, the best of three by processor time. Categories are compared on every recording at its peak. A tool
that is not given is left out. `cargo build --release -p stormlog-cli` first; CARGO_TARGET_DIR is respected.

The other tools unpickle, so give only recordings you made.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent

PICKLE = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    pickle.load(file)
"""

MEMORY_VIZ = """
import importlib.util, pickle, sys
spec = importlib.util.spec_from_file_location("viz", sys.argv[2])
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)
with open(sys.argv[1], "rb") as file:
    data = pickle.load(file)
len(getattr(viz, sys.argv[3])(data))
"""

MOSAIC = """
import json, logging, sys
logging.disable(logging.WARNING)
sys.path.insert(0, sys.argv[2])
from mosaic.libmosaic.analyzer.memory_abstract import MemoryAbstract
abstract = MemoryAbstract(memory_snapshot_file=sys.argv[1])
abstract.load_memory_snapshot()
abstract.memory_snapshot.analyze_memory_snapshot(opt="alloc_history", profile_types=["categories"])
peak = abstract.memory_snapshot.max_memory_usage.per_category_alloc_sum
print(json.dumps({kind.name.lower(): bytes for kind, bytes in peak.items()}))
"""


def run(command: list[str]) -> tuple[dict[str, float], str]:
    """Runs one command; its wall and processor time and its peak memory."""
    with tempfile.TemporaryFile() as out:
        start = os.times()
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        end = os.times()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 3):
            raise SystemExit(f"{command[:4]} failed with {process.returncode}")
        out.seek(0)
        text = out.read().decode()
    used = {
        "wall_s": round(end.elapsed - start.elapsed, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_mb": round(usage.ru_maxrss / 1000),
    }
    return used, text


def best(command: list[str]) -> dict[str, float]:
    """Best of three by processor time, which other work on the machine disturbs least."""
    return min((run(command)[0] for _ in range(3)), key=lambda result: result["cpu_s"])


def categories(file: Path, stormlog: str, mosaic: Path | None) -> dict[str, dict[str, float]]:
    """What each tool says the memory at the peak was for, in bytes."""
    report: dict[str, Any] = json.loads(run([stormlog, "snapshot", str(file), "--no-advice", "--json"])[1])
    found = {"stormlog": {share["category"]: share["bytes"] for share in report["categories"]}}
    if mosaic:
        found["mosaic"] = json.loads(run([sys.executable, "-c", MOSAIC, str(file), str(mosaic)])[1])
    return found


def main() -> None:
    """Measure what was given, print it as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recordings", type=Path, nargs="*")
    parser.add_argument("--large", type=Path)
    parser.add_argument("--memory-viz", type=Path)
    parser.add_argument("--mosaic", type=Path)
    arguments = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    stormlog = str(target / "release" / "stormlog")
    results: dict[str, Any] = {}
    if arguments.large:
        file, python = str(arguments.large), sys.executable
        page = str(Path(tempfile.gettempdir(), "compare-timeline.html"))
        rows = {
            "stormlog snapshot --no-advice": [stormlog, "snapshot", file, "--no-advice"],
            "stormlog snapshot": [stormlog, "snapshot", file],
            "stormlog replay --search": [stormlog, "replay", file, "--search"],
            "stormlog timeline": [stormlog, "timeline", file, "--force", "-o", page],
            "pickle.load": [python, "-c", PICKLE, file],
        }
        if arguments.memory_viz:
            viz = [python, "-c", MEMORY_VIZ, file, str(arguments.memory_viz)]
            rows |= {f"_memory_viz {what}": [*viz, what] for what in ("segsum", "trace", "trace_plot")}
        if arguments.mosaic:
            rows["mosaic alloc_history"] = [python, "-c", MOSAIC, file, str(arguments.mosaic)]
        results["tools"] = {name: best(command) for name, command in rows.items()}
        results["file_mb"] = round(arguments.large.stat().st_size / 1e6)
    results["categories"] = {}
    with tempfile.TemporaryDirectory() as directory:
        for recording in arguments.recordings:
            plain = Path(directory, recording.name.removesuffix(".gz"))
            plain.write_bytes(gzip.decompress(recording.read_bytes()))
            results["categories"][plain.stem] = categories(plain, stormlog, arguments.mosaic)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
