#!/usr/bin/env python3
"""What `stormlog serve` costs on a node with many runs: series, size, time of a scrape, CPU and memory.

    bench/serve/scrapes.py                        # 2,000 dead runs, 64 living ranks, a minute of scrapes
    bench/serve/scrapes.py --command target/debug/stormlog --dead 500 --seconds 30

Dead runs are copies of one real run whose record has 8 ranks with 16 workers each, two of them dead. Living
are one run of 8 ranks with 16 workers each, and runs of one rank. The CPU is that of the service alone, from
/proc, over all scrapes but the first, which reads everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

RANKS, WORKERS = 8, 16
# One process a rank, and its workers; each waits until its input ends.
JOB = f"""
import os, subprocess, sys
if len(sys.argv) == 1:
    job = dict(os.environ, WORLD_SIZE="{RANKS}", TORCHELASTIC_RUN_ID="bench")
    ranks = [dict(job, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range({RANKS})]
    children = [subprocess.Popen([sys.executable, __file__, "rank"], stdin=-1, env=env) for env in ranks]
elif sys.argv[1] == "rank":
    words = [sys.executable, __file__, "worker"]
    children = [subprocess.Popen(words, stdin=-1) for _ in range({WORKERS})]
else:
    children = []
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
    record = json.loads((run / "run.json").read_text())
    (row,) = record["processes"]
    rows = [{**row, "pid": 1000 + number} for number in range(RANKS * (1 + WORKERS))]
    record.update(status="interrupted", exit_code=None, signal=9, processes=rows, cause="sigkill")
    death = {"count": 2, "last_at_ns": record["ended_at_ns"], "bundle": "oom_dump_20261116T120000Z_1_cpu_1"}
    record["deaths"] = {"sigkill": death}
    (run / "run.json").write_text(json.dumps(record, indent=2))
    for number in range(count):
        shutil.copytree(run, root / f"2026-01-01T00-00-00Z-dead-{number:04x}")
    shutil.rmtree(template)


@contextlib.contextmanager
def living(stormlog: str, root: Path, ranks: int) -> Iterator[None]:
    """Keeps `ranks` ranks alive: one job of several, and runs of one rank each."""
    program = root.parent / "train.py"
    program.write_text(JOB)
    run = [stormlog, "run", "-q", "--no-heap", "--no-gpu", "--no-why", "--dir", str(root)]
    words = [[*run, sys.executable, str(program)], *([*run, "cat"] for _ in range(ranks - RANKS))]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in words]
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
    """A line of its status, in MiB."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found
    return int(found[1]) / 1024


def scrape(address: str) -> tuple[float, str]:
    """Seconds that it took, and the answer."""
    begun = time.monotonic()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return time.monotonic() - begun, text


def series(text: str) -> list[str]:
    """The lines with a number."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def measure(stormlog: str, root: Path, ranks: int, seconds: float, interval: float) -> dict[str, object]:
    """Serves `root` and scrapes it."""
    words = [stormlog, "serve", "--listen", "127.0.0.1:0", str(root)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr
        address = (
            service.stderr.readline().strip().removeprefix("Listening at http://").removesuffix("/metrics")
        )
        begun = time.monotonic()
        first, text = scrape(address)
        # What has ended is read once; that is not what a scrape costs.
        is_read = "\nstormlog_scrape_unread_runs 0\n"
        while text.count("stormlog_run_info{") < ranks or is_read not in text:
            time.sleep(1.1)
            _, text = scrape(address)
        ready = time.monotonic() - begun
        used, begun, times = cpu_seconds(service.pid), time.monotonic(), []
        while time.monotonic() - begun < seconds:
            time.sleep(interval)
            took, text = scrape(address)
            times.append(took)
        used, elapsed = cpu_seconds(service.pid) - used, time.monotonic() - begun
        of_ranks = [line for line in series(text) if 'rank="' in line]
        most = max(
            sum(f'rank="{rank}"' in line and 'job_id="bench"' in line for line in of_ranks)
            for rank in range(RANKS)
        )
        mean, longest = 1000 * sum(times) / len(times), 1000 * max(times)
        now, most_resident, own = (memory(service.pid, key) for key in ("VmRSS", "VmHWM", "RssAnon"))
        found = {
            "first scrape, and until everything was read": f"{first:.2f} s, {ready:.1f} s",
            "scrape, mean and longest": f"{mean:.0f} ms, {longest:.0f} ms",
            "CPU of the service": f"{100 * used / elapsed:.2f} % of one processor over {elapsed:.0f} s",
            "resident, now and most": f"{now:.0f} MiB, {most_resident:.0f} MiB ({own:.0f} MiB anonymous)",
            "series": len(series(text)),
            "series of a rank with 16 workers, no device": most,
            "size of an answer": f"{len(text) / 1024:.0f} KiB",
        }
        service.send_signal(signal.SIGTERM)
    return found


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--command", default="stormlog")
    parser.add_argument("--dead", type=int, default=2000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=15)
    options = parser.parse_args()
    os.environ["STORMLOG_KEEP"] = "all"
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "runs"
        root.mkdir()
        make_dead(options.command, root, options.dead)
        with living(options.command, root, options.ranks):
            found = measure(options.command, root, options.ranks, options.seconds, options.interval)
    living_ranks = f"{options.ranks} living ranks ({RANKS} with {WORKERS} workers each)"
    print(f"| {options.dead} dead runs, {living_ranks} | |\n|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
