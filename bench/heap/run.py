"""Measures heap recording side by side: the bare program, Stormlog and Memray, in turn; then reading it.

    python bench/heap/run.py [--only NAME ...] [--modes default native ...] [--who stormlog preload memray]
                             [--repeat 3] [--scale 1] [--stormlog COMMAND] [--preload LIBRARY]

`stormlog` is `stormlog run --heap`, supervisor and all; `preload` is the hook library alone, with nobody
to take what it writes: for work on the hooks. A ratio is the least CPU time of the workload over all
repetitions, divided by the bare program's least; the order turns with each repetition, so that a slow
minute of the machine hits all alike. `whole` counts the CPU of every process from start to end,
supervisor included. Writes Markdown to standard output and the raw figures to bench/data/heap.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAMES = [
    "deltablue", "raytrace", "go", "mdp", "json_loads", "json_dumps", "async_tree", "pickle_dumps",
    "unpickle", "docutils", "regex", "sqlite", "numpy_loop", "alloc_py", "mt_native", "imports",
]  # fmt: skip
# Not in the geometric mean: threads fight for the allocator's locks, and imports happen once.
APART = {"mt_native", "imports"}

# For each mode: flags of `stormlog run`, options of the library, flags of `memray run`; None: no such mode.
MODES: dict[str, tuple[list[str], str | None, list[str] | None]] = {
    "default": ([], "", []),
    "native": (["--native"], ";native=1", ["--native"]),
    "pyalloc": (["--trace-python-allocators"], ";pyalloc=1", ["--trace-python-allocators"]),
    "sample": (["--sample=524288"], ";sample=524288", None),
    "aggregate": (["--aggregate"], None, ["--aggregate"]),
}

Command = tuple[list[str], dict[str, str]]
Cell = dict[str, Any]


def command(
    options: argparse.Namespace, who: str, mode: str, work: list[str], capture: Path
) -> Command | None:
    """The command line and the environment added for it; None where there is no such mode."""
    bare = [options.python, *work]
    if who == "bare":
        return bare, {}
    ours, preload, memray = MODES[mode]
    if who == "memray":
        if memray is None:
            return None
        return [options.python, "-m", "memray", "run", "-q", "-f", *memray, "-o", str(capture), *work], {}
    if who == "preload":
        if preload is None:
            return None
        return bare, {"LD_PRELOAD": options.preload, "STORMLOG_HEAP": f"path={capture}{preload}"}
    run = ["run", "--dir", str(capture.parent / "runs"), "--heap", *ours, "--output", str(capture)]
    return [*shlex.split(options.stormlog), *run, "--", *bare], {}


def once(argv: list[str], added: dict[str, str]) -> Cell:
    """Runs a command; what it says about itself, and what it cost in all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(argv, env={**os.environ, **added}, capture_output=True, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"cpu"')]
    result: Cell = json.loads(lines[-1]) if lines else {}
    result["whole_wall"] = wall
    result["whole_cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def measure(options: argparse.Namespace, folder: Path) -> list[Cell]:
    """Every workload under everyone, in turn."""
    cells: dict[tuple[str, str, str], Cell] = {}
    everyone = [("bare", "-"), *((who, mode) for mode in options.modes for who in options.who)]
    for turn in range(options.repeat):
        for name in options.only:
            work = [str(HERE / "workloads.py"), name, str(options.scale)]
            shift = turn % len(everyone)
            for who, mode in everyone[shift:] + everyone[:shift]:
                capture = folder / f"{name}-{who}-{mode}.bin"
                made = command(options, who, mode, work, capture)
                if made is None:
                    continue
                for old in folder.glob(capture.name + "*"):
                    old.unlink()
                result = once(*made)
                cell = cells.setdefault((name, who, mode), {"workload": name, "who": who, "mode": mode})
                for key, value in result.items():
                    cell[key] = min(value, cell.get(key, value))
                if who != "bare":
                    cell["file"] = sum(path.stat().st_size for path in folder.glob(capture.name + "*"))
                cpu = result.get("cpu", 0)
                print(f"{turn + 1}/{options.repeat} {name} {who} {mode}: {cpu:.2f} s", file=sys.stderr)
    return list(cells.values())


def read_reports(options: argparse.Namespace, folder: Path) -> list[Cell]:
    """How long each takes to say what it recorded. Our reader also reads Memray's files."""
    reports = []
    for who in options.who:
        for name in options.only:
            capture = folder / f"{name}-{who}-default.bin"
            if not list(folder.glob(capture.name + "*")):
                continue
            readers = {"stormlog": [*shlex.split(options.stormlog), "stats", "--json", str(capture)]}
            if who == "memray":
                readers["memray"] = [options.python, "-m", "memray", "stats", str(capture)]
            for reader, argv in readers.items():
                best = min(
                    (once(argv, {}) for _ in range(options.repeat)), key=lambda run: float(run["whole_wall"])
                )
                times = {"wall": best["whole_wall"], "cpu": best["whole_cpu"]}
                reports.append({"workload": name, "file_of": who, "reader": reader, **times})
    return reports


def table(cells: list[Cell], mode: str, everyone: list[str]) -> list[str]:
    """One mode's ratios to the bare run, and the sizes of the files."""
    by = {(cell["workload"], cell["who"], cell["mode"]): cell for cell in cells}
    here = [who for who in everyone if any((who, mode) == (cell["who"], cell["mode"]) for cell in cells)]
    columns = [("cpu", "CPU"), ("wall", "wall"), ("whole_cpu", "whole CPU")]
    heads = [f"{who} {title} ratio" for _, title in columns for who in here] + [f"{who} kB" for who in here]
    lines = [
        f"### {mode}",
        "",
        "| workload | bare s | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 2) + "|",
    ]
    logs: dict[tuple[str, str], list[float]] = {}
    for name in dict.fromkeys(cell["workload"] for cell in cells):
        bare = by[(name, "bare", "-")]
        row = [name, f"{bare['cpu']:.2f}"]
        for key, _ in columns:
            for who in here:
                ratio = by[(name, who, mode)][key] / bare[key]
                row.append(f"{ratio:.2f}")
                if name not in APART:
                    logs.setdefault((key, who), []).append(math.log(ratio))
        row += [f"{by[(name, who, mode)]['file'] / 1000:.0f}" for who in here]
        lines.append("| " + " | ".join(row) + " |")
    if logs:
        means = [math.exp(sum(logs[key, who]) / len(logs[key, who])) for key, _ in columns for who in here]
        row = ["**geometric mean**", "", *(f"**{mean:.2f}**" for mean in means), *("" for _ in here)]
        lines.append("| " + " | ".join(row) + " |")
    if {"stormlog", "memray"} <= set(here):
        ratios = [
            f"{name} {by[name, 'stormlog', mode]['file'] / max(cell['file'], 1):.2f}"
            for (name, who, its), cell in by.items()
            if (who, its) == ("memray", mode)
        ]
        lines += ["", "File sizes, Stormlog's by Memray's: " + ", ".join(ratios) + "."]
    return [*lines, ""]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--who", nargs="+", choices=["stormlog", "preload", "memray"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--stormlog", default="stormlog", help="the command")
    parser.add_argument("--preload", help="the hook library, for `preload`")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with the packages of README.md"
    )
    parser.add_argument("--no-reports", action="store_true")
    options = parser.parse_args()
    options.who = options.who or (["preload", "memray"] if options.preload else ["stormlog", "memray"])
    if "preload" in options.who and not options.preload:
        parser.error("preload needs --preload LIBRARY")
    with tempfile.TemporaryDirectory(prefix="stormlog-heap-") as scratch:
        cells = measure(options, Path(scratch))
        reports = [] if options.no_reports else read_reports(options, Path(scratch))
    data = HERE.parent / "data"
    data.mkdir(exist_ok=True)
    (data / "heap.json").write_text(json.dumps({"cells": cells, "reports": reports}, indent=1))
    for mode in options.modes:
        print("\n".join(table(cells, mode, options.who)))
    if reports:
        print("| capture of | written by | read by | wall s | CPU s |\n|---|---|---|---|---|")
        for report in reports:
            row = [
                report["workload"],
                report["file_of"],
                report["reader"],
                f"{report['wall']:.2f}",
                f"{report['cpu']:.2f}",
            ]
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
