"""A real Prometheus over `stormlog serve`: rules fire on a leak and a kill, reach Alertmanager, resolve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from monitoring import Monitoring, Start, printed
from places import PROGRAMS
from run_command import cgroup, command, in_cgroup, until

# Grows by 8 MiB a second, until it gets the request to take all memory. The line is the holder.
LEAKS = """
import os, select, sys
holders = os.environ.get("STAND_IN_HOLDERS")
if holders:
    with open(holders, "w") as file:
        file.write(f"{os.getpid()} 1536\\n4194304 512\\n")
    import torch
    stats, trouble = torch._C._cuda_memoryStats, {"num_alloc_retries": 0, "num_ooms": 0}
    torch._C._cuda_memoryStats = lambda device: {**stats(device), **trouble}
    tensor = torch.stand_in.take(64 << 20)
kept = []
while not select.select([sys.stdin], [], [], 0.05)[0]:
    kept.append(b"x" * 400_000)
while sys.stdin.readline() == "more\\n":
    while True:
        kept.append(b"x" * (1 << 20))
"""


@pytest.fixture
def monitoring(tmp_path: Path, started: Start, port: Callable[[], int]) -> Monitoring:
    return Monitoring(tmp_path, started, port)


def leak(monitoring: Monitoring, group: Path, **env: str) -> subprocess.Popen[str]:
    """A program of job `night` that leaks in a cgroup."""
    program = monitoring.place / "train.py"
    program.write_text(LEAKS)
    words = in_cgroup(group, command(monitoring.runs, sys.executable, str(program), options=("--heap",)))
    known = {**os.environ, "SLURM_JOB_ID": "night", **env}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(words, stdin=pipe, stdout=null, stderr=null, text=True, env=known)


def test_rules_fire_on_a_leak_and_on_a_kill_and_resolve(monitoring: Monitoring) -> None:
    with cgroup(512 << 20) as group, leak(monitoring, group) as program:
        assert program.stdin
        soon = monitoring.firing("StormlogTimeToLimit")
        assert (soon["job_id"], soon["rank"], soon["limit"]) == ("night", "0", "cgroup")
        assert soon["severity"] == "critical"
        assert not monitoring.query("ALERTS{alertname=~'Stormlog.*Death'}")
        program.stdin.write("more\n")
        program.stdin.flush()
        died = monitoring.firing("StormlogOutOfMemoryDeath")
        assert died["cause"] == "cgroup_oom_kill"
        assert program.wait() == -9
        monitoring.resolved("StormlogTimeToLimit")
        monitoring.resolved("StormlogOutOfMemoryDeath")
        (count,) = monitoring.query('stormlog_deaths_total{cause="cgroup_oom_kill"}')
        assert count["value"][1] == "1", "the counter stays when the alert is over"


def queries() -> list[tuple[str, str]]:
    """Every query of the dashboard, as Grafana would send it with all values chosen."""
    dashboard = json.loads(printed("dashboard"))
    found = [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    found += [(mark["name"], mark["expr"]) for mark in dashboard["annotations"]["list"]]
    for variable in dashboard["templating"]["list"][1:]:
        series = variable["definition"].removeprefix("label_values(").rsplit(",", 1)[0]
        found.append((variable["name"], series))
    for name, value in (("$job_id", ".*"), ("$host", ".*"), ("$rank", ".*"), ("$__rate_interval", "15s")):
        found = [(title, expression.replace(name, value)) for title, expression in found]
    return found


def test_every_query_of_the_dashboard_returns_data_with_stand_ins_for_nvml_and_torch(
    monitoring: Monitoring, tmp_path: Path, nvml_stand_in: Path
) -> None:
    env = {
        "LD_LIBRARY_PATH": str(nvml_stand_in.parent), "STAND_IN_USED_GIB": "4",
        "STAND_IN_HOLDERS": str(tmp_path / "holders"), "STAND_IN_UUID": "stand-in",
        "PYTHONPATH": str(PROGRAMS / "stand_in"),
    }  # fmt: skip
    died = command(monitoring.runs, sys.executable, "-c", "import os; os.abort()")
    subprocess.run(died, capture_output=True, check=False)
    with cgroup(512 << 20) as group, leak(monitoring, group, **env) as program:
        missing: list[Any] = []

        def is_complete() -> bool:
            missing[:] = [query for query in queries() if not monitoring.query(query[1])]
            return not missing

        try:
            until(is_complete)
        except AssertionError:
            pytest.fail(f"no data for {missing}")
        finally:
            program.kill()
