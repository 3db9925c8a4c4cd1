"""`stormlog sql`: tables of a recording, asked by DuckDB where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stormlog import CPUMemoryTracker

HAS_DUCKDB = importlib.util.find_spec("duckdb") is not None
needs_duckdb = pytest.mark.skipif(not HAS_DUCKDB, reason="DuckDB is not installed")
COMMAND = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"


def sql(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, "sql", *arguments]
    env = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


@pytest.fixture
def recording(tmp_path: Path) -> str:
    tracker = CPUMemoryTracker(sampling_interval=0.01)
    with tracker, tracker.phase("work"):
        tracker._add_event("sample", 0, "mine")
    tracker.export_events(tmp_path / "events.json", "json")
    return str(tmp_path / "events.json")


@needs_duckdb
def test_events_and_sessions_are_tables(recording: str) -> None:
    done = sql(recording, "select event_type, count(*) as n from events group by 1", "--json")
    assert done.returncode == 0, done.stderr
    counts = {row["event_type"]: row["n"] for row in json.loads(done.stdout)}
    assert counts["phase_enter"] == counts["start"] == 1 and counts["sample"] >= 1
    assert done.stderr == ""
    done = sql(recording, "select status, count(*) from sessions group by 1", "--csv")
    assert done.stdout.splitlines()[1] == "completed,1", done.stderr


@needs_duckdb
def test_invalid_statement_is_reported_and_files_are_out_of_reach(recording: str, tmp_path: Path) -> None:
    done = sql(recording, "select nothing from events")
    assert done.returncode == 2 and "Tables here: events" in done.stderr
    out = tmp_path / "out.csv"
    done = sql(recording, f"copy events to '{out}'")
    assert done.returncode == 2 and not out.exists()
    assert sql("nowhere.json", "select 1").returncode == 5


def test_without_duckdb_it_says_what_to_install(recording: str, tmp_path: Path) -> None:
    (tmp_path / "duckdb.py").write_text("raise ImportError('hidden')")
    done = sql(recording, "select 1", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'stormlog[sql]'" in done.stderr
