"""A program that forks for an hour under `stormlog run --heap`: the supervisor's memory and descriptors.

    python bench/soak.py --stormlog target/release/stormlog [--seconds 3600] [--forks 20000] [--keep]

The program starts short-lived processes of four kinds at a steady pace (a C program, a shell with a pipe, a
forked copy of itself that allocates, a Python interpreter), keeps eight workers alive that allocate all
the time, and replaces one of them every few seconds. The budget is a condition, not a timing, so this also
runs in CI (two minutes): more memory or descriptors than the budget allows at any sample is a failure, as is
a capture that was not finished.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from results import Row, keep

#: The budget, as docs/heap-recording.md states it.
MEMORY, MEMORY_FOR_A_PROCESS = 32_000_000, 64_000
DESCRIPTORS, DESCRIPTORS_FOR_A_PROCESS = 32, 3
WORKERS = 8

PROGRAM = """
import os, random, signal, subprocess, sys, time
seconds, forks = float(sys.argv[1]), int(sys.argv[2])

def worker():
    pid = os.fork()
    if pid == 0:
        kept = []
        while True:
            kept.append(bytearray(random.randrange(1000, 20000)))
            if len(kept) > 500:
                kept.clear()
            time.sleep(0.001)
    return pid

def short(kind):
    if kind == 0:
        subprocess.run(["/bin/true"])
    elif kind == 1:
        subprocess.run("echo 1 | cat", shell=True, stdout=subprocess.DEVNULL)
    elif kind == 2:
        pid = os.fork()
        if pid == 0:
            kept = [bytearray(2000) for _ in range(1000)]
            os._exit(len(kept) - 1000)
        os.waitpid(pid, 0)
    else:
        subprocess.run([sys.executable, "-S", "-c", "x = [bytes(1000) for _ in range(1000)]"])

workers = [worker() for _ in range(WORKERS)]
begun, done = time.monotonic(), 0
while done < forks:
    due = begun + seconds * done / forks
    time.sleep(max(0.0, due - time.monotonic()))
    # One interpreter in twenty, as they cost most.
    short(3 if done % 20 == 0 else done % 3)
    done += 1
    if done % 50 == 0:
        pid = workers.pop(0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        workers.append(worker())
print(done, time.monotonic() - begun, flush=True)
for pid in workers:
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
""".replace("WORKERS", str(WORKERS))


@dataclass
class Sample:
    """The supervisor at one moment."""

    second: float
    memory: int
    descriptors: int
    living: int

    def over(self) -> str | None:
        """What is beyond the budget."""
        memory = MEMORY + MEMORY_FOR_A_PROCESS * self.living
        descriptors = DESCRIPTORS + DESCRIPTORS_FOR_A_PROCESS * self.living
        if self.memory > memory:
            return f"{self.memory / 1e6:.1f} MB with {self.living} processes, {memory / 1e6:.1f} MB allowed"
        if self.descriptors > descriptors:
            return f"{self.descriptors} descriptors with {self.living} processes, {descriptors} allowed"
        return None


def descendants(pid: int) -> int:
    """Living processes below a process."""
    count, pending = 0, [pid]
    while pending:
        above = pending.pop()
        try:
            children = Path(f"/proc/{above}/task/{above}/children").read_text().split()
        except OSError:
            continue
        count += len(children)
        pending.extend(map(int, children))
    return count


def look(pid: int, begun: float, before: int) -> Sample | None:
    """The supervisor now; None when it has ended. Processes that lived `before` may be settled just now."""
    before = max(before, descendants(pid))
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return None
    rss = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return (
        Sample(time.monotonic() - begun, int(rss[0]) * 1024, descriptors, max(before, descendants(pid)))
        if rss
        else None
    )


def rows(samples: list[Sample], forks: int, outcome: dict[str, int]) -> list[Row]:
    """The figures of a soak."""
    what = (
        f"supervisor over {forks:,} short-lived processes in {samples[-1].second:.0f} s, {WORKERS} living on"
    )
    memory, descriptors = max(s.memory for s in samples), max(s.descriptors for s in samples)
    of_memory = f"≤ {MEMORY / 1e6:.0f} MB + {MEMORY_FOR_A_PROCESS / 1e3:.0f} kB a living process"
    of_descriptors = f"≤ {DESCRIPTORS} + {DESCRIPTORS_FOR_A_PROCESS} a living process"
    return [
        Row(f"{what}: most memory", f"{memory / 1e6:.1f} MB", goal=of_memory),
        Row("the same: most descriptors", f"{descriptors}", goal=of_descriptors),
        Row("the same: the run's directory", f"{outcome['bytes']:,} bytes in {outcome['files']:,} files"),
    ]


def main() -> None:
    """Runs the soak and holds it to the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stormlog", default="stormlog", help="the command")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--forks", type=int, help="default: 20,000 an hour")
    parser.add_argument("--keep", action="store_true", help="write the figures to results/soak.json")
    options = parser.parse_args()
    forks = options.forks or round(options.seconds * 20_000 / 3600)
    with tempfile.TemporaryDirectory(prefix="stormlog-soak-") as scratch:
        words = [*shlex.split(options.stormlog), "run", "--heap", "--wait", "--json", "--dir", scratch, "--"]
        words += [sys.executable, "-c", PROGRAM, str(options.seconds), str(forks)]
        errors = (Path(scratch) / "stderr").open("w+")
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        begun, before = time.monotonic(), 0
        samples: list[Sample] = []
        while running.poll() is None:
            living = descendants(running.pid)
            if (sample := look(running.pid, begun, before)) is not None:
                samples.append(sample)
            before = living
            time.sleep(1)
        errors.seek(0)
        report = errors.read()
        if running.returncode != 0:
            raise SystemExit(f"soak: the run ended with {running.returncode}:\n{report[-4000:]}")
        outcome = json.loads(report)
        run = Path(outcome["path"])
        files = [path for path in run.rglob("*") if path.is_file()]
        left = [path.name for path in files if path.suffix == ".live"]
        found = rows(samples, forks, {"bytes": sum(p.stat().st_size for p in files), "files": len(files)})
    print("\n".join(f"{row.what}: {row.ours} ({row.goal})" for row in found))
    if options.keep:
        command = f"make soak SOAK_SECONDS={options.seconds:.0f}"
        keep("soak", "Soak: `stormlog run --heap` over short-lived processes", found, command=command)
    problems = [f"after {s.second:.0f} s: {over}" for s in samples if (over := s.over())]
    if left:
        problems.append(f"{len(left)} captures were not finished: {left[:5]}")
    if problems:
        raise SystemExit("soak: over the budget\n" + "\n".join(problems[:20]))
    print(f"soak: {len(samples)} samples within the budget")


if __name__ == "__main__":
    main()
