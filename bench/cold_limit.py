"""How long a program takes to be killed at the limit of its memory cgroup when its files are not cached.

    bench/cold_limit.py STORMLOG --limit 1200 --read ENV -- ENV/bin/python examples/workers/ray_tasks.py

Runs the command in turn bare and under `stormlog run`, each time with an empty page cache (root, cgroup
version 1). Files below --read are read before each run, outside the group. Pages of code that are in the
group are dropped and read again at the limit, which the kernel takes for progress: it may put off the kill
for minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup/memory")


def run_once(words: list[str], limit: int, patience: float) -> str:
    """Seconds until it ended, and pages that were read again."""
    group = CGROUPS / f"stormlog-bench-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(limit))
    join = ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh", *words]
    begun = time.monotonic()
    quiet = subprocess.DEVNULL
    program = subprocess.Popen(join, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        program.wait(timeout=patience)
        took = f"{time.monotonic() - begun:.1f} s"
    except subprocess.TimeoutExpired:
        took = f"not ended after {patience:.0f} s"
    rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    for _ in range(100):
        for pid in (group / "cgroup.procs").read_text().split():
            subprocess.run(["kill", "-9", pid], stderr=quiet)
        program.poll()
        try:
            group.rmdir()
            break
        except OSError:
            time.sleep(0.1)
    return f"{took}, {int(rows.get('workingset_refault_file', 0)):,} pages read again"


def main() -> None:
    """Bare and recorded, in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stormlog")
    parser.add_argument("--limit", type=int, required=True, help="MiB")
    parser.add_argument("--read", type=Path, help="a directory whose files are read first")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--patience", type=float, default=100.0)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    if os.getuid() != 0 or not (CGROUPS / "memory.limit_in_bytes").exists():
        raise SystemExit("needs root and a version 1 memory cgroup")
    for number in range(asked.runs):
        for name in ("bare", "recorded"):
            runs = tempfile.mkdtemp()
            recorded = [asked.stormlog, "run", "--dir", runs, "--"] if name == "recorded" else []
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
            if asked.read:
                for path in asked.read.rglob("*"):
                    if path.is_file() and not path.is_symlink():
                        path.read_bytes()
            took = run_once([*recorded, *asked.command], asked.limit << 20, asked.patience)
            print(f"{number + 1} {name}: {took}", flush=True)
            shutil.rmtree(runs, ignore_errors=True)


if __name__ == "__main__":
    main()
