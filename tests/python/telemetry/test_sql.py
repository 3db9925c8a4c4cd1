"""`stormlog sql`: tables of a recording, asked by DuckDB where it is installed."""

from __future__ import annotations

import csv
import importlib.util
import io
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


@needs_duckdb
def test_statement_that_names_no_table_is_told_which_there_are(recording: str) -> None:
    done = sql(recording, "select * from event")
    assert done.returncode == 2
    assert "names none of the tables of a recording: events, sessions, runs" in done.stderr


@pytest.fixture
def lake(recording: str, tmp_path: Path) -> Path:
    lake = tmp_path / "lake"
    command = [sys.executable, "-c", COMMAND, "publish", recording, "--to", str(lake)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return lake


TEXTS = """select '\x1b[31m"red"' as steering, 'a,b' as comma, 'ö' as letter,
'one' || chr(10) || 'two' as lines, null as nothing"""


@needs_duckdb
def test_texts_are_inert_in_a_table_and_whole_in_csv_and_json(lake: Path) -> None:
    table = sql(str(lake), TEXTS).stdout
    assert "\x1b" not in table
    assert table.splitlines()[2].split() == ['␛[31m"red"', "a,b", "ö", "one␊two"]
    expected = {
        "steering": '\x1b[31m"red"',
        "comma": "a,b",
        "letter": "ö",
        "lines": "one\ntwo",
    }
    (row,) = csv.DictReader(io.StringIO(sql(str(lake), TEXTS, "--csv").stdout))
    assert row == {**expected, "nothing": ""}
    assert json.loads(sql(str(lake), TEXTS, "--json").stdout) == [{**expected, "nothing": None}]
    assert json.loads(sql(str(lake), f"{TEXTS} where false", "--json").stdout) == []


@needs_duckdb
def test_many_rows_are_all_written(lake: Path) -> None:
    rows = sql(str(lake), "select now() as at, range from range(25000)", "--csv").stdout.splitlines()
    assert len(rows) == 25_001 and rows[-1].endswith(",24999")
    assert len(json.loads(sql(str(lake), "select range from range(25000)", "--json").stdout)) == 25_000


@needs_duckdb
def test_lake_is_read_without_what_is_damaged_or_linked(lake: Path, tmp_path: Path) -> None:
    question = "select count(*) from samples"
    before = sql(str(lake), question)
    (part,) = lake.glob("samples/date=*/job_id=*/part-*.parquet")
    (tmp_path / "elsewhere.parquet").write_bytes(part.read_bytes())
    part.with_name("part-link.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    torn = part.with_name("part-torn.parquet")
    torn.write_bytes(part.read_bytes()[:-100])
    after = sql(str(lake), question)
    assert after.stdout == before.stdout and before.returncode == after.returncode == 0
    assert before.stderr == "" and after.stderr.startswith(f"Warning: {torn}: ")
    assert after.stderr.count(torn.name) == 1
