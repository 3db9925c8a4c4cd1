#!/usr/bin/env python3
"""How long a terminal UI takes to show its first frame: ours beside that of stormlog 0.4.3, in one run.

    bench/tui/first_frame.py                                  # ten starts each, in turn
    bench/tui/first_frame.py --command target/release/stormlog --starts 5

Each start is on a pseudo-terminal of its own, in a directory with 200 runs that have ended. The time is from
the start of the process to the moment its screen shows the tabs and what is in the first. The peer comes from
its package with the extra `tui`, into a directory of its own (`--peer PYTHON` names one that is there).
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

RUNS = 200
PATIENCE = 60.0
PEER = "stormlog[tui]==0.4.3"


def seconds_to(words: list[str], shown: list[bytes], folder: Path) -> float:
    """From the start until all of these were written to the screen."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    began = time.perf_counter()
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=env, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    try:
        while not all(word in seen for word in shown):
            if time.perf_counter() - began > PATIENCE:
                raise SystemExit(f"{words[0]}: no frame in {PATIENCE:.0f} s:\n{seen[-2000:]!r}")
            if select.select([ours], [], [], 0.05)[0]:
                seen += os.read(ours, 65536)
        return time.perf_counter() - began
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def made_runs(command: str, folder: Path) -> None:
    """Runs that have ended: copies of a real one."""
    runs = folder / "stormlog-runs"
    subprocess.run([command, "run", "--quiet", "--dir", str(runs), "--", "true"], check=True)
    (first,) = runs.iterdir()
    for number in range(RUNS - 1):
        shutil.copytree(first, runs / f"{first.name[:-4]}{number:04x}")


def made_peer(folder: Path) -> str:
    """An interpreter with the peer."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "peer")], check=True)
    python = str(folder / "peer/bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True)
    return python


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--command", default=shutil.which("stormlog"), help="our command")
    parser.add_argument("--peer", help="an interpreter that has stormlog 0.4.3 with its extra tui")
    parser.add_argument("--starts", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        peer = arguments.peer or made_peer(folder)
        command = str(Path(arguments.command).resolve())
        made_runs(command, folder)
        ours, theirs = [], []
        for _ in range(arguments.starts):
            ours.append(seconds_to([command], [b"Overview", b"ended", b"PROGRAM"], folder))
            theirs.append(
                seconds_to([peer, "-m", "stormlog.entrypoint"], [b"Overview", b"Diagnostics"], folder)
            )
    for name, times in (("stormlog", ours), ("stormlog 0.4.3", theirs)):
        print(f"{name:15} median {statistics.median(times):6.3f} s   worst {max(times):6.3f} s")
    print(f"ratio           {statistics.median(ours) / statistics.median(theirs):.3f}")


if __name__ == "__main__":
    main()
