"""What `make demo` shows: two programs that die, and what is left of them."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = HERE.parent / "stormlog-runs"
KILL_AT_STEP = 40
WIDTH, HEIGHT = 76, 12
LEVELS = " ▁▂▃▄▅▆▇█"


def say(text: str = "") -> None:
    """Prints at once, in order with what the commands print."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show(*command: str, succeeds: bool = True) -> None:
    """Runs a command the way a reader would type it."""
    say(f"\n$ {shlex.join(command)}")
    # The commands beside this interpreter come first, so that no environment has to be activated.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    subprocess.run(command, check=succeeds, cwd=RUNS, env={**os.environ, "PATH": path})


def record_and_kill() -> None:
    """Starts the program and kills it in the middle of its work."""
    program = HERE / "demo_leak.py"
    say(f"A program with a leak, recording itself: examples/{program.name}")
    command = [sys.executable, str(program), str(RUNS / "demo")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as leaking:
        assert leaking.stdout
        for line in leaking.stdout:
            if line.strip() == f"step {KILL_AT_STEP}":
                leaking.kill()
    if leaking.returncode != -signal.SIGKILL:
        raise SystemExit(f"the program was to be killed, but ended with {leaking.returncode}")
    say(f"Step {KILL_AT_STEP}, and kill -9: no exception, no atexit, nothing flushed. What is left?")


def chart(path: Path) -> None:
    """Resident memory over time, as the recording has it."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["device_used_bytes"]]
    times = [int(row["timestamp_ns"]) for row in rows]
    used = [int(row["device_used_bytes"]) / 2**20 for row in rows]
    span = max(times[-1] - times[0], 1)
    # The highest reading of each column; a column without one repeats the last.
    columns = [0.0] * WIDTH
    for time, value in zip(times, used, strict=True):
        column = (time - times[0]) * (WIDTH - 1) // span
        columns[column] = max(columns[column], value)
    for column in range(1, WIDTH):
        columns[column] = columns[column] or columns[column - 1]
    top = max(columns)
    say(f"\nResident memory up to the kill ({len(rows)} readings):\n")
    for row in reversed(range(HEIGHT)):
        eighths = [round(value / top * HEIGHT * 8) - row * 8 for value in columns]
        bars = "".join(LEVELS[min(max(part, 0), 8)] for part in eighths)
        say(f"{top * (row + 1) / HEIGHT:7.0f} MB ┤{bars}{' ← killed' if row == HEIGHT - 1 else ''}")
    say(f"{'':11}└{'─' * WIDTH}\n{'0 s':>14}{f'{span / 1e9:.1f} s':>{WIDTH - 2}}")
    first, last = min(used[: len(used) // 8 or 1]), min(used[-(len(used) // 8 or 1) :])
    say(f"\nBetween two steps it fell back to {first:.0f} MB at first, to {last:.0f} MB at the end: a leak.")


def main() -> None:
    """Tells the story."""
    for name in ("demo", "demo-run"):
        shutil.rmtree(RUNS / name, ignore_errors=True)
    RUNS.mkdir(exist_ok=True)
    record_and_kill()
    show("stormlog", "sessions", "demo")
    show("stormlog", "validate", "demo")
    show("stormlog", "convert", "demo", "demo.csv")
    chart(RUNS / "demo.csv")
    say("\nNow a program that was not changed at all, with a limit on its memory: examples/demo_runaway.py")
    runaway = os.path.relpath(HERE / "demo_runaway.py", RUNS)
    # Python's own address space is part of the limit.
    show("stormlog", "run", "--dir", "demo-run", "--limit", "160MiB", runaway, succeeds=False)
    show("stormlog", "oom", "show", "demo-run")
    say("\nThe recordings are in stormlog-runs/demo and stormlog-runs/demo-run.")


main()
