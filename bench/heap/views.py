"""Measures the views of a large capture: 10 million allocations from 100,000 stacks, one in a hundred kept.

    python bench/heap/views.py [--stormlog COMMAND] [--python PYTHON] [--repeat 3] [--memray] [--keep DIR]

Wall time, CPU time and peak resident memory of each view, and the size of what it writes; the least of all
repetitions. `--memray` records and reports the same program with Memray (in PYTHON's environment) as well.
Writes Markdown to standard output.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import sys
held = []

def leaf():
    for _ in range(99):
        bytearray(600)
    held.append(bytearray(600))

def left(path, depth):
    if depth == 0:
        leaf()
    elif path & 1:
        left(path >> 1, depth - 1)
    else:
        right(path >> 1, depth - 1)

def right(path, depth):
    if depth == 0:
        leaf()
    elif path & 1:
        left(path >> 1, depth - 1)
    else:
        right(path >> 1, depth - 1)

for path in range(int(sys.argv[1])):
    left(path, 17)
"""
STACKS = 100_000

Cost = tuple[float, float, int]


def cost(argv: list[str]) -> Cost:
    """Wall and CPU seconds, and peak resident bytes of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{shlex.join(argv)} ended with {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def views(stormlog: list[str], capture: Path, out: Path) -> dict[str, tuple[list[str], Path | None]]:
    """Name, command and the file it writes, of every view."""
    page = [*stormlog, "flamegraph", str(capture), "--force", "--output", str(out)]
    return {
        "flamegraph": ([*page, "--no-temporal"], out),
        "flamegraph --leaks": ([*page, "--leaks", "--no-temporal"], out),
        "flamegraph --temporary": ([*page, "--temporary"], out),
        "flamegraph --temporal": ([*page, "--temporal"], out),
        "table --html": ([*stormlog, "table", str(capture), "--html", "--force", "--output", str(out)], out),
        "tree": ([*stormlog, "tree", str(capture)], None),
        "stats": ([*stormlog, "stats", str(capture)], None),
        "leaks": ([*stormlog, "leaks", str(capture)], None),
    }


def memray_views(python: str, capture: Path, out: Path) -> dict[str, tuple[list[str], Path | None]]:
    """The same of Memray."""
    memray = [python, "-m", "memray"]
    page = [*memray, "flamegraph", "-f", "-o", str(out), str(capture)]
    return {
        "memray flamegraph": (page, out),
        "memray flamegraph --temporal": ([*page, "--temporal"], out),
        "memray table": ([*memray, "table", "-f", "-o", str(out), str(capture)], out),
        "memray stats": ([*memray, "stats", str(capture)], None),
    }


def main() -> None:
    """Records, measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stormlog", default="target/release/stormlog")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memray", action="store_true")
    parser.add_argument("--keep", type=Path, help="work here and leave everything")
    options = parser.parse_args()
    stormlog = shlex.split(options.stormlog)
    with tempfile.TemporaryDirectory(prefix="stormlog-views-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "stacks.py"
        program.write_text(PROGRAM, encoding="utf-8")
        work = [str(program), str(STACKS)]
        capture, out = folder / "heap.bin", folder / "view.html"
        if not capture.exists():
            run = [
                *stormlog,
                "run",
                "--quiet",
                "--heap",
                "--output",
                str(capture),
                "--",
                options.python,
                *work,
            ]
            subprocess.run(run, check=True, env={**os.environ, "STORMLOG_DIR": str(folder / "runs")})
        jobs = views(stormlog, capture, out)
        if options.memray:
            theirs = folder / "memray.bin"
            if not theirs.exists():
                record = [options.python, "-m", "memray", "run", "-q", "-o", str(theirs), *work]
                subprocess.run(record, check=True)
            jobs |= memray_views(options.python, theirs, out)
        print(f"capture {capture.stat().st_size / 1e6:.1f} MB\n")
        print("| view | wall s | CPU s | peak RSS MB | file MB |\n|---|---|---|---|---|")
        for name, (argv, written) in jobs.items():
            costs = [cost(argv) for _ in range(options.repeat)]
            wall, cpu, resident = (min(column) for column in zip(*costs, strict=True))
            size = f"{written.stat().st_size / 1e6:.2f}" if written else ""
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {resident / 1e6:.0f} | {size} |", flush=True)


if __name__ == "__main__":
    main()
