"""With a CUDA GPU: GPU memory as `stormlog run` recorded it equals `torch.cuda.memory_stats()` to the byte.

    python tests/gpu/exact.py --stormlog PATH [CASE...] [--run-option=--heap] [--end exit] [--json FILE]

Runs each program of `exact_cases.py` under `stormlog run`, reads `stormlog stats RUN --pid PID --json`, and
compares every process that used CUDA. Needs nothing but torch and the command. Exits with 1 when one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("exact_cases.py")
#: What we call a counter of PyTorch's.
COUNTERS = {
    "allocations": "allocation.all.allocated",
    "total_allocated_bytes": "allocated_bytes.all.allocated",
    "live_bytes": "allocated_bytes.all.current",
    "peak_bytes": "allocated_bytes.all.peak",
    "peak_reserved_bytes": "reserved_bytes.all.peak",
    "failed_requests": "num_ooms",
}
SETTINGS = {
    "expandable": "expandable_segments:True",
    "settings": "roundup_power2_divisions:8,max_split_size_mb:64,garbage_collection_threshold:0.6",
    "async": "backend:cudaMallocAsync",
}
#: Allocators that report nothing to PyTorch's profiler.
SILENT = ("async", "pluggable")
NAMES = (
    *("train", "amp", "streams", "graphs", "expandable", "settings", "mempool", "oom", "compile", "loader"),
    *("ipc", "empty_cache", "threads", "checkpoint", "async", "pluggable"),
)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Case:
    """One program, from its start to the comparison."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        self.name = name
        self.options = options
        self.counted = folder / "counted"
        self.runs = folder / "runs"
        self.counted.mkdir(parents=True)

    def run(self) -> list[str]:
        """The differences; none is what is wanted."""
        env = {**os.environ, "EXACT_END": self.options.end}
        if self.name in SETTINGS:
            env["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[self.name]
        driver = ["--cuda-driver"] if self.name in SILENT else []
        words = [self.options.stormlog, "run", "--dir", str(self.runs), "-q", *driver]
        words += [*self.options.run_option, "--", self.options.python, str(PROGRAMS), self.name]
        # Not a pipe: helpers of a killed program (torch.compile's) may keep its end open.
        printed = self.counted / "printed.txt"
        with printed.open("wb") as file:
            done = subprocess.run(
                [*words, str(self.counted)], stdout=file, stderr=file, env=env, timeout=self.options.timeout
            )
        pages = [json.loads(path.read_text()) for path in sorted(self.counted.glob("*.json"))]
        if not pages:
            text = printed.read_text(errors="replace")[-2000:]
            return [f"the program counted nothing (status {done.returncode}): {text}"]
        (run,) = [path.parent for path in self.runs.glob("*/run.json")]
        return [problem for page in pages for problem in self.compare(run, page)]

    def compare(self, run: Path, page: dict[str, Any]) -> list[str]:
        """One process's capture with what PyTorch counted in it."""
        if "skipped" in page["notes"]:
            say(f"  skipped: {page['notes']['skipped']}")
            return []
        words = [self.options.stormlog, "stats", str(run), "--pid", str(page["pid"]), "--top", "1000000"]
        done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return [f"stats of process {page['pid']}: {done.stderr.strip()}"]
        devices = {row["device"]: row for row in json.loads(done.stdout).get("devices", [])}
        if self.name in SILENT:
            return self.compare_silent(words, page, devices)
        found = devices.get("cuda:0")
        if found is None:
            return [f"process {page['pid']}: no cuda:0 in {sorted(devices)}"]
        wrong = [
            f"process {page['pid']}: {ours} is {found.get(ours)}, PyTorch counted {page[theirs]} ({theirs})"
            for ours, theirs in COUNTERS.items()
            if found.get(ours) != page[theirs]
        ]
        if found.get("before_recording_bytes"):
            wrong.append(f"process {page['pid']}: {found['before_recording_bytes']} bytes before recording")
        named = sum(row["bytes"] for row in found["top"] if str(row.get("file", "")).endswith(PROGRAMS.name))
        listed = sum(row["bytes"] for row in found["top"])
        if listed > found["live_bytes"] + found["peak_bytes"]:
            wrong.append(f"process {page['pid']}: the lines hold {listed} bytes")
        share = named / listed if listed else 1.0
        facts = ", ".join(f"{name} {found.get(name)}" for name in COUNTERS)
        say(f"  process {page['pid']}: {facts} {page['notes'] or ''}")
        say(f"    {share:.1%} of the {listed} bytes listed are at a line of the program")
        return wrong

    def compare_silent(self, words: list[str], page: dict[str, Any], devices: dict[str, Any]) -> list[str]:
        """An allocator that does not report: the driver's events, and a sentence."""
        text = subprocess.run(words, capture_output=True, text=True, timeout=300).stdout
        notes = [line.strip() for line in text.splitlines() if "not report" in line]
        driver = devices.get("cuda:0/driver", {})
        say(f"  process {page['pid']}: PyTorch {page}")
        say(f"  driver's events: { {name: value for name, value in driver.items() if name != 'top'} }")
        say(f"  says: {notes}")
        wrong = [] if notes else ["no line says that this allocator does not report"]
        if devices.get("cuda:0", {}).get("allocations"):
            wrong.append(f"reports of an allocator that makes none: {devices['cuda:0']}")
        # Libraries take memory from the driver too (workspaces of cuBLAS): as much at the peak as at the end.
        names = ("live_bytes", "peak_bytes")
        beside = {
            ours: driver.get(ours, 0) - page[COUNTERS[ours]]
            for ours in names
            if page[COUNTERS[ours]] is not None
        }
        say(f"  beside PyTorch's pool: {beside}")
        if any(size < 0 for size in beside.values()) or len(set(beside.values())) > 1:
            wrong.append(f"the driver's events differ from what PyTorch counted by {beside}")
        return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {' '.join(NAMES)} (default: all)")
    parser.add_argument("--stormlog", default="stormlog", help="the command")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    parser.add_argument(
        "--run-option", action="append", default=[], help="for `stormlog run`, may be repeated"
    )
    parser.add_argument("--end", choices=["kill", "exit"], default="kill", help="SIGKILL or _exit(0)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a program may take")
    parser.add_argument("--json", help="write the results here")
    options = parser.parse_args()
    results: dict[str, list[str]] = {}
    for name in options.cases or NAMES:
        say(f"{name}:")
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="stormlog-exact-") as folder:
            try:
                results[name] = Case(name, options, Path(folder)).run()
            except Exception as error:
                results[name] = [f"{type(error).__name__}: {error}"]
        for problem in results[name]:
            say(f"  DIFFERS {problem}")
        say(f"  {'differs' if results[name] else 'exact'} ({time.perf_counter() - began:.1f} s)")
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2))
    failed = [name for name, problems in results.items() if problems]
    say(f"{len(results) - len(failed)} exact, {len(failed)} differ: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
