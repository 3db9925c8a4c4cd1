#!/usr/bin/env python3
"""What watching costs: `stormlog top` over living ranks, and `stormlog tui` over many dead runs.

    bench/tui/watch.py                                  # 64 ranks with 16 workers each; 10,000 dead runs
    bench/tui/watch.py --command target/release/stormlog --ranks 16 --dead 1000 --seconds 20

Living are runs of 8 ranks with WORKERS workers each, sampled ten times a second: one run a machine, as
torchrun starts them, all of one job. The CPU and the memory are those of the watching process alone, from
/proc, after its first 10 s. Dead runs are copies of one real run; the time is that until the screen shows
all of them. Wanted: below 3 % of a core and 60 MB; the full list in less than 1 s.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

RANKS = 8
COLUMNS, LINES = 160, 50
# One process a rank, and its workers, which wait until their input ends.
JOB = """
import os, subprocess, sys
first, ranks, world, workers = map(int, sys.argv[1:5])
if len(sys.argv) == 5:
    job = dict(os.environ, WORLD_SIZE=str(world), TORCHELASTIC_RUN_ID="bench")
    envs = [dict(job, RANK=str(first + rank), LOCAL_RANK=str(rank)) for rank in range(ranks)]
    words = [sys.executable, *sys.argv, "rank"]
    children = [subprocess.Popen(words, stdin=-1, env=env) for env in envs]
else:
    children = [subprocess.Popen(["cat"], stdin=-1) for _ in range(workers)]
sys.stdin.read()
for child in children:
    child.stdin.close()
    child.wait()
"""


def make_dead(stormlog: str, root: Path, count: int) -> None:
    """Fills `root` with `count` runs that have ended."""
    template = root / "template"
    subprocess.run([stormlog, "run", "-q", "--no-heap", "--dir", template, "true"], check=True)
    (run,) = template.iterdir()
    for number in range(count):
        shutil.copytree(run, root / f"2026-01-01T00-00-00Z-dead-{number:05x}")
    shutil.rmtree(template)


@contextlib.contextmanager
def living(stormlog: str, root: Path, ranks: int, workers: int) -> Iterator[None]:
    """Keeps `ranks` ranks alive, in runs of 8."""
    program = root.parent / "train.py"
    program.write_text(JOB)
    run = [stormlog, "run", "-q", "--no-heap", "--no-gpu", "--no-why", "--dir", str(root), sys.executable]
    numbers = [[str(first), str(min(RANKS, ranks - first)), str(ranks)] for first in range(0, ranks, RANKS)]
    commands = [[*run, str(program), *words, str(workers)] for words in numbers]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]
    try:
        yield
    finally:
        for process in started:
            assert process.stdin
            process.stdin.close()
        for process in started:
            process.wait()


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, key: str) -> float:
    """A line of its status, in MB."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found
    return int(found[1]) * 1024 / 1e6


class Screen:
    """A command on a terminal of its own; what it draws is kept as letters, without where they are."""

    def __init__(self, command: list[str]) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=environment,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.rows: dict[int, dict[int, str]] = {}
        self.at = [0, 0]

    def read(self, seconds: float) -> None:
        """Takes in what is drawn within that time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and select.select([self.ours], [], [], left)[0]:
            self.feed(os.read(self.ours, 1 << 16).decode(errors="replace"))

    def feed(self, text: str) -> None:
        """Places the letters: only moves of the cursor matter."""
        for move, letter in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|\x1b[^\[]|([^\x1b\x00-\x1f])", text):
            if move.endswith("H"):
                row, _, column = move[:-1].partition(";")
                self.at = [int(row or 1) - 1, int(column or 1) - 1]
            elif letter:
                self.rows.setdefault(self.at[0], {})[self.at[1]] = letter
                self.at[1] += 1

    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(
            "".join(row.get(at, " ") for at in range(COLUMNS)) for _, row in sorted(self.rows.items())
        )

    def wait_for(self, pattern: str, patience: float = 120) -> float:
        """Seconds from the start until the screen shows it."""
        while not re.search(pattern, self.text()):
            if time.monotonic() - self.begun > patience or self.process.poll() is not None:
                raise SystemExit(f"never shown: {pattern}\n{self.text()}")
            self.read(0.01)
        return time.monotonic() - self.begun

    def close(self) -> None:
        """Leaves it."""
        os.write(self.ours, b"q")
        self.process.wait(timeout=20)
        os.close(self.ours)


def watch(stormlog: str, root: Path, ranks: int, seconds: float) -> dict[str, str]:
    """Watches the ranks."""
    screen = Screen([stormlog, "top", str(root)])
    first = screen.wait_for(rf"{ranks} of {ranks} ranks")
    screen.read(10)
    pid = screen.process.pid
    used, begun = cpu_seconds(pid), time.monotonic()
    screen.read(seconds)
    used, elapsed = cpu_seconds(pid) - used, time.monotonic() - begun
    now, anonymous = memory(pid, "VmRSS"), memory(pid, "RssAnon")
    screen.close()
    return {
        "until all ranks are shown": f"{first:.2f} s",
        "CPU": f"{100 * used / elapsed:.2f} % of one processor over {elapsed:.0f} s",
        "resident": f"{now:.0f} MB, {anonymous:.0f} MB of it anonymous",
    }


def open_dead(stormlog: str, root: Path, count: int) -> dict[str, str]:
    """Opens many runs."""
    screen = Screen([stormlog, "tui", str(root)])
    frame = screen.wait_for("Overview")
    full = screen.wait_for(rf"0 living, {count} ended\s")
    screen.read(5)
    pid = screen.process.pid
    used, begun = cpu_seconds(pid), time.monotonic()
    screen.read(10)
    share = 100 * (cpu_seconds(pid) - used) / (time.monotonic() - begun)
    resident = memory(pid, "VmRSS")
    screen.close()
    return {
        "first frame": f"{frame:.2f} s",
        "full list": f"{full:.2f} s",
        "CPU afterwards": f"{share:.2f} % of one processor",
        "resident": f"{resident:.0f} MB",
    }


def table(title: str, found: dict[str, str]) -> None:
    """Prints it."""
    print(f"| {title} | |\n|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value} |")
    print(flush=True)


def main() -> None:
    """Measures, and prints two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", default="stormlog")
    parser.add_argument("--recorder", help="the program that records, where it is another one")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--dead", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    os.environ["STORMLOG_KEEP"] = "all"
    with tempfile.TemporaryDirectory() as directory:
        if options.ranks:
            root = Path(directory) / "living"
            root.mkdir()
            with living(options.recorder or options.command, root, options.ranks, options.workers):
                found = watch(options.command, root, options.ranks, options.seconds)
            table(f"{options.ranks} ranks with {options.workers} workers each, at 10 Hz", found)
        if options.dead:
            root = Path(directory) / "dead"
            root.mkdir()
            make_dead(options.recorder or options.command, root, options.dead)
            table(f"{options.dead} dead runs", open_dead(options.command, root, options.dead))


if __name__ == "__main__":
    main()
