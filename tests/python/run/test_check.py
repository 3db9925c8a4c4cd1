"""`stormlog check` and `compare` on real runs: CI reads what is written, and what differs is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from run_command import until

HOLDS = (
    "import sys, time\n"
    "kept = [bytearray(b'x') * (int(sys.argv[1]) << 20) for _ in range(20)]\n"
    "time.sleep(1.0)\n"
)


def stormlog(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"
    command = [sys.executable, "-c", code, *arguments]
    env = {**os.environ, **more}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two real runs of one program: more memory and another setting the second time."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "holds.py").write_text(HOLDS)
    made = []
    for name, size, arenas in (("before", "1", "2"), ("after", "4", "8")):
        (folder / name).mkdir()
        program = [sys.executable, str(folder / "holds.py"), size]
        done = stormlog(folder / name, "run", "--interval", "0.02", "--", *program, MALLOC_ARENA_MAX=arenas)
        assert done.returncode == 0, done.stderr
        (run,) = (folder / name / "stormlog-runs").iterdir()
        made.append(run)
    return made[0], made[1]


def test_two_runs_show_what_they_took_and_what_was_set(runs: tuple[Path, Path], tmp_path: Path) -> None:
    done = stormlog(tmp_path, "compare", str(runs[0]), str(runs[1]), "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["peak_device_used_bytes"]["delta"] > 30 << 20
    assert found["settings"]["environment.MALLOC_ARENA_MAX"] == {"a": "2", "b": "8"}
    assert "command" in found["settings"]
    # A directory with one run in it is that run.
    page = stormlog(tmp_path, "compare", str(runs[0].parent), str(runs[1].parent)).stdout
    assert "environment.MALLOC_ARENA_MAX: 2 → 8" in page and "peak device used" in page


def test_junit_and_markdown_are_well_formed_and_counted(runs: tuple[Path, Path], tmp_path: Path) -> None:
    budget = ("--max-peak", "30MiB", "--junit", "j.xml", "--markdown", "c.md")
    done = stormlog(tmp_path, "check", str(runs[1]), *budget)
    assert done.returncode == 4, done.stdout + done.stderr
    suites = ET.parse(tmp_path / "j.xml").getroot()
    assert suites.tag == "testsuites" and suites.get("failures") == "1"
    (suite,) = suites
    cases = list(suite)
    assert suite.tag == "testsuite" and suite.get("tests") == str(len(cases))
    assert all(case.get("name") and case.get("classname") for case in cases)
    failures = [case.find("failure") for case in cases if case.find("failure") is not None]
    assert [
        failure is not None and "≤ 30.00 MiB" in (failure.get("message") or "") for failure in failures
    ] == [True]
    table = [line for line in (tmp_path / "c.md").read_text().splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1 and "| FAILED |" in table[2]


def test_a_baseline_is_made_kept_and_moved(runs: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = map(str, runs)
    assert stormlog(tmp_path, "check", before, "--baseline", "b.json", "--update-baseline").returncode == 0
    kept = (tmp_path / "b.json").read_text()
    failed = stormlog(tmp_path, "check", after, "--baseline", "b.json")
    assert failed.returncode == 4 and "FAILED" in failed.stdout
    assert (tmp_path / "b.json").read_text() == kept, "a gate that fails changes nothing"
    assert stormlog(tmp_path, "check", after, "--baseline", "b.json", "--update-baseline").returncode == 0
    assert (tmp_path / "b.json").read_text() != kept
    assert stormlog(tmp_path, "check", after, "--baseline", "b.json").returncode == 0
    (tmp_path / "b.json").write_text('{"format": "other"}')
    wrong = stormlog(tmp_path, "check", after, "--baseline", "b.json")
    assert wrong.returncode == 5 and "not a memory baseline" in wrong.stderr


FAMILY = """
import subprocess, sys
child = "import sys; kept = bytearray(b'x') * (50 << 20); print('holds', flush=True); sys.stdin.read()"
start = lambda: subprocess.Popen(
    [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
together = [start(), start()]
for one in together:
    one.stdout.readline()
print("both", flush=True)
sys.stdin.readline()
for one in together:
    one.communicate("")
"""


def test_a_budget_is_for_all_processes_at_one_moment(tmp_path: Path) -> None:
    (tmp_path / "family.py").write_text(FAMILY)
    code = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"
    options = ["--interval", "0.02", "--dir", "runs", "-q", "--no-heap"]
    command = [sys.executable, "-c", code, "run", *options, "--", sys.executable, "family.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None and run.stdout.readline() == "both\n"

        def both_are_sampled() -> bool:
            rows = json.loads(stormlog(tmp_path, "query", "events", "runs", "--json").stdout or "[]")
            return len({row["pid"] for row in rows if (row["device_used_bytes"] or 0) > 50 << 20}) == 2

        until(both_are_sampled)
        run.communicate("\n")
    assert run.returncode == 0
    # Each holds about 55 MiB; together they hold more than 100.
    assert stormlog(tmp_path, "check", "runs", "--max-peak", "90MiB").returncode == 4
    assert stormlog(tmp_path, "check", "runs", "--max-peak", "200MiB").returncode == 0
