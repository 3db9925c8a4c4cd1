"""What watching costs: CPU time of `stormlog run` and of `stormlog track --pid`, in percent of one core.

    bench/run_cost.py STORMLOG [SECONDS]

The program sleeps and holds 200 MB, and is looked at ten times a second. `quiet` is a PID namespace of its
own (root only), where no other process starts; `busy` starts 100 processes a second beside it, as a
compilation does. Time is what the scheduler counted for all threads, from two seconds after the start on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTLED = 2.0
BIRTHS = "while :; do sleep 0.01; done"
PROGRAM = """
import sys, time
held = bytearray(200_000_000)
for page in range(0, len(held), 4096): held[page] = 1
time.sleep(float(sys.argv[1]))
"""


def cpu_ns(pid: int) -> int:
    """What all threads of a process have run so far."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


def percent(words: list[str], seconds: float) -> float:
    """The share of one core that a command takes while it watches."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as watcher:
        time.sleep(SETTLED)
        before, began = cpu_ns(watcher.pid), time.monotonic_ns()
        time.sleep(seconds)
        spent, passed = cpu_ns(watcher.pid) - before, time.monotonic_ns() - began
        watcher.terminate()
    return 100 * spent / passed


def run(stormlog: str, seconds: float) -> float:
    """Of `run`, the supervisor alone."""
    with tempfile.TemporaryDirectory() as directory:
        words = [stormlog, "run", "--quiet", "--interval", "0.1", "--dir", directory, "--"]
        return percent([*words, sys.executable, "-c", PROGRAM, str(seconds + 60)], seconds)


def track(stormlog: str, seconds: float) -> float:
    """Of `track --pid`, with a file."""
    words = [sys.executable, "-c", PROGRAM, str(seconds + 60)]
    with subprocess.Popen(words) as program, tempfile.TemporaryDirectory() as directory:
        time.sleep(1)  # it has its memory by then
        output = str(Path(directory) / "events.csv")
        words = [stormlog, "track", "--interval", "0.1", "--output", output, "--pid", str(program.pid)]
        found = percent(words, seconds)
        program.terminate()
    return found


def measure(stormlog: str, seconds: float, where: str) -> None:
    """Both, as rows of a table."""
    for name, command in (("run", run), ("track --pid", track)):
        print(
            f"| `stormlog {name}`, 10 Hz, {where} | {command(stormlog, seconds):.3f} % of one core |",
            flush=True,
        )


def main() -> None:
    """Quiet where that can be had, then busy."""
    stormlog, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    if os.environ.get("STORMLOG_BENCH_QUIET"):
        measure(stormlog, seconds, "quiet")
        return
    print(f"load average: {' '.join(f'{load:.1f}' for load in os.getloadavg())}", flush=True)
    if os.getuid() == 0:
        apart = [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            sys.executable,
            __file__,
            stormlog,
            str(seconds),
        ]
        subprocess.run(apart, env={**os.environ, "STORMLOG_BENCH_QUIET": "1"}, check=True)
    with subprocess.Popen(["sh", "-c", BIRTHS]) as births:
        measure(stormlog, seconds, "busy")
        births.terminate()


main()
