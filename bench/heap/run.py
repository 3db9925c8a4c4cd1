"""Measures heap recording side by side: the bare program, Stormlog and Memray, in turn.

    python bench/heap/run.py [--quick] [--only PART ...] [--workloads NAME ...] [--repeat 3] [--minutes 25]
                             [--stormlog COMMAND] [--preload LIBRARY] [--markdown FILE] [--table] [--keep]

The parts, each of which can be measured alone and again; figures of earlier parts are kept:

    plain      `stormlog run` without a flag
    default    every allocation with its Python stack      threads   four native threads of malloc and free
    native     C, C++ and Rust frames too                  imports   194 libraries
    pyalloc    every Python object                         start     time, memory, address space of nothing
    sample     Poisson sampling at 512 KiB (Memray: none)  disk      bytes on disk during the run and after it
    aggregate  bounded file                                reading   `stats` of what each recorded

`stormlog` is `stormlog run --heap` (in `plain`: without it), supervisor and all; with `--preload` it is
the hook library alone, without a compactor for what it writes: for work on the hooks. A ratio is the least
CPU time of the workload over all repetitions, divided by the bare program's least; the order turns with
each repetition, so that a slow minute of the machine hits all alike. `--minutes` is shared by the parts:
repetitions that do not fit are left out, never the first. Figures go to bench/data/heap.json, the table to
standard output or into `--markdown FILE`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from report import figures, markdown

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import Row, keep

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "heap.json"
SINGLE = [
    "deltablue", "raytrace", "go", "mdp", "json_loads", "json_dumps", "async_tree", "pickle_dumps",
    "unpickle", "docutils", "regex", "sqlite", "numpy_loop", "alloc_py",
]  # fmt: skip
QUICK = ["raytrace", "json_loads", "sqlite", "alloc_py"]
# Captures that are large enough for the time of reading them to mean something.
READ = ["alloc_py", "sqlite", "numpy_loop"]

# For each mode: flags of `stormlog run`, options of the library, flags of `memray run`; None: no such mode.
MODES: dict[str, tuple[list[str], str | None, list[str] | None]] = {
    "default": ([], "", []),
    "plain": ([], None, None),
    "native": (["--native"], ";native=1", ["--native"]),
    "pyalloc": (["--trace-python-allocators"], ";pyalloc=1", ["--trace-python-allocators"]),
    "sample": (["--sample=524288"], ";sample=524288", None),
    "aggregate": (["--aggregate"], None, ["--aggregate"]),
}
# For each part: its modes, and its workloads where it has some of its own.
PARTS: dict[str, tuple[list[str], list[str] | None]] = {
    **{mode: ([mode], None) for mode in MODES},
    "threads": (["default", "native", "plain"], ["mt_native"]),
    "imports": (["default", "native"], ["imports"]),
    "start": (["default", "native"], ["nothing"]),
    "disk": (["default"], None),
    "reading": (["default"], READ),
}
# How much of the time each part may take, in the order of their cost.
SHARE = {
    "plain": 4,
    "default": 5,
    "native": 5,
    "pyalloc": 6,
    "sample": 3,
    "aggregate": 5,
    "threads": 2,
    "reading": 3,
}

Cell = dict[str, Any]


def command(
    options: argparse.Namespace, who: str, mode: str, work: list[str], capture: Path
) -> tuple[list[str], dict[str, str]] | None:
    """The command line and the environment added for it; None where there is no such mode."""
    bare = [options.python, *work]
    if who == "bare":
        return bare, {}
    ours, preload, memray = MODES[mode]
    if who == "memray":
        run = [options.python, "-m", "memray", "run", "-q", "-f", "-o", str(capture)]
        return None if memray is None else ([*run, *memray, *work], {})
    if options.preload:
        setting = {"LD_PRELOAD": options.preload, "STORMLOG_HEAP": f"path={capture}{preload}"}
        return None if preload is None else (bare, setting)
    run = ["run", "--quiet", "--dir", str(capture.parent / "runs")]
    if mode != "plain":
        run += ["--heap", *ours, "--output", str(capture)]
    return [*shlex.split(options.stormlog), *run, "--", *bare], {}


class Watch(threading.Thread):
    """The most bytes that files of one capture took on disk, looked at a hundred times a second."""

    def __init__(self, capture: Path) -> None:
        super().__init__(daemon=True)
        self.capture, self.most, self.over = capture, 0, threading.Event()

    def now(self) -> int:
        """Bytes at this moment."""
        total = 0
        # While it runs, ours lie in the directory of the run.
        parts = [(self.capture.parent, self.capture.name + "*"), (self.capture.parent / "runs", "**/heap/*")]
        for path in (path for folder, pattern in parts for path in folder.glob(pattern)):
            with contextlib.suppress(OSError):
                total += path.stat().st_blocks * 512
        return total

    def run(self) -> None:
        """Looks until it is over."""
        while not self.over.wait(0.01):
            self.most = max(self.most, self.now())


def once(argv: list[str], added: dict[str, str]) -> Cell:
    """Runs a command; what it says about itself, and what it cost in all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start, begun = time.perf_counter(), {"BENCH_BEGUN_NS": str(time.time_ns())}
    done = subprocess.run(argv, env={**os.environ, **added, **begun}, capture_output=True, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"cpu"')]
    result: Cell = json.loads(lines[-1]) if lines else {}
    result["whole_wall"] = wall
    result["whole_cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def measure(options: argparse.Namespace, part: str, folder: Path, deadline: float) -> list[Cell]:
    """Every workload of a part under everyone, in turn."""
    modes, own = PARTS[part]
    cells: dict[tuple[str, str, str], Cell] = {}
    everyone = [("bare", "-"), *((who, mode) for mode in modes for who in ("stormlog", "memray"))]
    repeat = 10 if part == "start" and not options.quick else 1 if part == "disk" else options.repeat
    for turn in range(repeat):
        if turn and time.monotonic() > deadline:
            print(f"{part}: {turn} repetitions fitted", file=sys.stderr)
            break
        for name in own or options.workloads:
            work = [str(HERE / "workloads.py"), name, str(options.scale)]
            shift = turn % len(everyone)
            for who, mode in everyone[shift:] + everyone[:shift]:
                capture = folder / f"{name}-{who}-{mode}.bin"
                made = command(options, who, mode, work, capture)
                if made is None or (part == "disk" and who == "bare"):
                    continue
                for old in folder.glob(capture.name + "*"):
                    old.unlink()
                shutil.rmtree(folder / "runs", ignore_errors=True)
                watch = Watch(capture)
                if part == "disk":
                    watch.start()
                result = once(*made)
                watch.over.set()
                cell = cells.setdefault((name, who, mode), {"workload": name, "who": who, "mode": mode})
                for key, value in result.items():
                    cell[key] = min(value, cell.get(key, value))
                if who != "bare":
                    cell["file"] = sum(path.stat().st_size for path in folder.glob(capture.name + "*"))
                    cell["disk"] = watch.most
                print(
                    f"{part} {turn + 1}/{repeat} {name} {who} {mode}: {result.get('cpu', 0):.2f} s",
                    file=sys.stderr,
                )
    return list(cells.values())


def read(options: argparse.Namespace, folder: Path, deadline: float) -> list[Cell]:
    """How long each takes to say what it recorded. Our reader also reads Memray's files."""
    measure(argparse.Namespace(**{**vars(options), "repeat": 1}), "reading", folder, deadline)
    ours, theirs = shlex.split(options.stormlog), [options.python, "-m", "memray", "stats"]
    reports = []
    for name in READ:
        files = {who: str(folder / f"{name}-{who}-default.bin") for who in ("stormlog", "memray")}
        readers = [
            ("stormlog", "stormlog", [*ours, "stats", "--json", files["stormlog"]]),
            ("memray", "stormlog", [*ours, "stats", "--json", files["memray"]]),
            ("memray", "memray", [*theirs, files["memray"]]),
        ]
        best: dict[tuple[str, str], Cell] = {}
        for turn in range(options.repeat):
            for of, reader, argv in readers[turn % 3 :] + readers[: turn % 3]:
                run = once(argv, {})
                known = best.setdefault((of, reader), run)
                best[of, reader] = min(known, run, key=lambda run: float(run["whole_wall"]))
        for (of, reader), run in best.items():
            times = {"wall": run["whole_wall"], "cpu": run["whole_cpu"]}
            reports.append({"workload": name, "file_of": of, "reader": reader, **times})
    return reports


def _ratio(ours: str, peer: str) -> str:
    try:
        return f"{float(ours) / float(peer):.2f}"
    except (ValueError, ZeroDivisionError):
        return ""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=list(PARTS), metavar="PART")
    parser.add_argument("--workloads", nargs="+", choices=SINGLE, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="four workloads, once each: some three minutes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=25, help="for all parts together")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--stormlog", default="stormlog", help="the command")
    parser.add_argument("--preload", help="the hook library, in place of `stormlog run`")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter with the packages of README.md"
    )
    parser.add_argument("--markdown", type=Path, help="where the table goes")
    parser.add_argument("--keep", action="store_true", help="write the figures to ../results/heap.json")
    parser.add_argument("--table", action="store_true", help="only the table of what was measured before")
    options = parser.parse_args()
    options.workloads = options.workloads or (QUICK if options.quick else SINGLE)
    options.repeat = 1 if options.quick else options.repeat
    known: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    known = known if "parts" in known else {"parts": {}}
    shares = sum(SHARE.get(part, 1) for part in options.only)
    for part in [] if options.table else options.only:
        deadline = time.monotonic() + options.minutes * 60 * SHARE.get(part, 1) / shares
        with tempfile.TemporaryDirectory(prefix="stormlog-heap-") as scratch:
            act = read if part == "reading" else lambda o, f, d, part=part: measure(o, part, f, d)
            known["parts"][part] = act(options, Path(scratch), deadline)
        DATA.parent.mkdir(exist_ok=True)
        DATA.write_text(json.dumps(known, indent=1))
    if options.keep:
        rows = [
            Row(what, ours, peer, _ratio(ours, peer), goal)
            for what, goal, ours, peer in figures(known["parts"])
        ]
        title = "Heap recording: cost to the recorded program, in multiples of the bare program"
        keep("heap", title, rows, command="bench/heap/run.py --stormlog STORMLOG", peer="Memray")
    text = markdown(known["parts"])
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
