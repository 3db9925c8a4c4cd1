"""A real Prometheus scrapes `stormlog serve`: its linter has no complaint, and the series arrive."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import components

STORMLOG = [sys.executable, "-m", "stormlog"]
# A worker dies when it is recorded; the program lives until its input ends.
PROGRAM = """
import glob, multiprocessing, os, signal, sys, time
def die():
    while not glob.glob(f"{os.environ['STORMLOG_RUN_DIR']}/rank0-pid{os.getpid()}/session.json"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGSEGV)
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    worker = multiprocessing.Process(target=die)
    worker.start()
    worker.join()
    sys.stdin.read()
"""
CONFIG = """
global: {{scrape_interval: 1s}}
storage: {{exemplars: {{max_exemplars: 100}}}}
scrape_configs:
  - job_name: stormlog
    static_configs: [{{targets: ["127.0.0.1:{0}"]}}]
"""


def until(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 90
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)
    return found


def ask(port: int, path: str, **words: str) -> Any:
    """What Prometheus answers; `None` while it starts."""
    address = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def values(port: int, query: str) -> dict[frozenset[tuple[str, str]], float]:
    found = ask(port, "query", query=query) or {"result": []}
    return {frozenset(row["metric"].items()): float(row["value"][1]) for row in found["result"]}


def test_prometheus_scrapes_a_living_run_and_the_death_of_its_worker(
    tmp_path: Path, started: Callable[..., subprocess.Popen[bytes]], port: Callable[[], int]
) -> None:
    tools = components.unpacked("sid", *components.MONITORING) / "usr/bin"
    runs, program = tmp_path / "runs", tmp_path / "train.py"
    runs.mkdir()
    program.write_text(PROGRAM)
    own, theirs = port(), port()
    started(*STORMLOG, "serve", "--listen", f"127.0.0.1:{own}", runs, name="serve")
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(own))
    options = {
        "config.file": tmp_path / "prometheus.yml",
        "storage.tsdb.path": tmp_path / "data",
        "web.listen-address": f"127.0.0.1:{theirs}",
        "enable-feature": "exemplar-storage",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    started(tools / "prometheus", *words, name="prometheus")
    assert until(lambda: values(theirs, "stormlog_deaths_total == 0")), "every cause before the first death"
    words = [*STORMLOG, "run", "-q", "--dir", str(runs), "--no-gpu", sys.executable, str(program)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        rank = '{job_id="train.py",rank="0"}'
        assert until(lambda: values(theirs, f"stormlog_process_resident_bytes{rank} > 1e6"))
        died = until(lambda: values(theirs, 'increase(stormlog_deaths_total{cause="signal"}[5m]) > 0'))
        assert len(died) == 1
        assert values(theirs, "time() - stormlog_last_death_timestamp_seconds < 300")
        joined = (
            "stormlog_process_resident_bytes * on (job_id, rank, slot) group_left (run_id) stormlog_run_info"
        )
        (labels,) = until(lambda: values(theirs, joined))
        assert dict(labels)["run_id"] == next(runs.iterdir()).name
        recent = {"start": str(time.time() - 300), "end": str(time.time() + 10)}
        exemplars = until(lambda: ask(theirs, "query_exemplars", query="stormlog_deaths_total", **recent))
        (bundle,) = {row["labels"]["bundle"] for series in exemplars for row in series["exemplars"]}
        assert list(runs.glob(f"*/*/{bundle}"))
        with urllib.request.urlopen(f"http://127.0.0.1:{own}/metrics", timeout=30) as answer:
            text = answer.read()
        lint = subprocess.run([tools / "promtool", "check", "metrics"], input=text, capture_output=True)
        assert (lint.returncode, lint.stdout, lint.stderr) == (0, b"", b"")
        assert run.stdin
        run.stdin.close()
    assert until(lambda: not values(theirs, "stormlog_process_resident_bytes")), "gone with the run"
    (target,) = ask(theirs, "targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
