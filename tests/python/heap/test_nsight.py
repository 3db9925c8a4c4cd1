"""Exports of Nsight Systems in every shape that SQLite can give them: nsys's tables, written by SQLite."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from run_command import STORMLOG

MIB = 1 << 20
PROCESS = (1 << 48) | (4711 << 24)
SCHEMA = """
CREATE TABLE StringIds (
    -- Consolidation of repetitive string values.
    id INTEGER NOT NULL PRIMARY KEY, -- ID reference value.
    value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL,
    callchainId INTEGER -- REFERENCES CUDA_CALLCHAINS(id)
);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER, module INTEGER, unresolved INTEGER,
    originalIP INTEGER, stackDepth INTEGER);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER);
"""


def export(path: Path, blocks: int, *, pragma: str = "", name: str = "fill(int)") -> Path:
    """A program that allocates blocks of 1 MiB on GPU 1 and frees every second one, in one function."""
    database = sqlite3.connect(path)
    database.execute(pragma or "PRAGMA page_size = 4096")
    database.executescript(SCHEMA)
    database.executemany(
        "INSERT INTO StringIds VALUES (?, ?)",
        [(1, "cudaMalloc_v3020"), (2, name), (3, "main"), (4, "/bin/app")],
    )
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '')")
    database.executemany("INSERT INTO CUDA_CALLCHAINS VALUES (9, ?, 4, 0, 0, ?)", [(2, 0), (3, 1)])
    for number in range(blocks):
        call = (number, number, 0, PROCESS | 12, number, 1, 0, 9)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?, ?)", call)
        event = (number * 1000, PROCESS, 1, 1, (number + 1) * MIB, 0, MIB, 2)
        add = "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)"
        database.execute(add, (*event, 0, number))
        if number % 2:
            database.execute(add, (number * 1000 + 1, *event[1:], 1, None))
    # Another process with the same addresses.
    database.execute(add, (5, PROCESS + (1 << 24), 1, 1, MIB, 0, MIB // 2, 2, 0, None))
    database.commit()
    database.close()
    return path


def stats(path: Path) -> Any:
    words = [*STORMLOG, "stats", str(path), "--json", "--memory", "cuda:1/driver"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(path: Path) -> str:
    done = subprocess.run([*STORMLOG, "stats", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done
    return done.stderr


@pytest.mark.parametrize(
    "pragma",
    [
        "PRAGMA page_size = 512",
        "PRAGMA page_size = 65536",
        "PRAGMA encoding = 'UTF-16le'",
        "PRAGMA encoding = 'UTF-16be'",
    ],
)
def test_every_page_size_and_encoding_gives_the_same_figures(tmp_path: Path, pragma: str) -> None:
    # Longer than a page: the text continues on overflow pages.
    name = "fill<" + "x" * 70_000 + ">(int)"
    found = stats(export(tmp_path / "report.sqlite", 300, pragma=pragma, name=name))
    assert found["total_allocations"] == 300
    assert found["leaked_bytes"] == 150 * MIB and found["peak_bytes"] == 151 * MIB
    assert found["imported"] == "SQLite export of Nsight Systems"


def test_views_open_an_export_with_its_stacks(tmp_path: Path) -> None:
    path = export(tmp_path / "report.sqlite", 20)
    folded = tmp_path / "stacks.folded"
    words = [*STORMLOG, "transform", "collapsed", str(path), "-o", str(folded), "--memory", "cuda:1/driver"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "main" in folded.read_text() and "fill(int)" in folded.read_text()
    page = [*STORMLOG, "flamegraph", str(path), "-o", str(tmp_path / "page.html")]
    for words in (page, [*STORMLOG, "diff", str(path), str(path)], [*STORMLOG, "analyze", str(path)]):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_databases_without_memory_events_get_one_sentence(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT)")
    assert "without the tables of Nsight Systems" in refused(other)
    path = export(tmp_path / "report.sqlite", 4)
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert "decompress it first" in refused(packed)
    database = sqlite3.connect(path)
    database.execute("DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS")
    database.commit()
    assert "--cuda-memory-usage=true" in refused(path)
    database.execute("DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS")
    database.commit()
    assert "--cuda-memory-usage=true" in refused(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE more (x)")
    database.commit()
    assert "still being written" in refused(path)
    database.close()


def test_real_export_opens(tmp_path: Path) -> None:
    packed = ROOT / "crates/import/tests/data/nsight.sqlite.gz"
    path = tmp_path / "report.sqlite"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    done = subprocess.run([*STORMLOG, "stats", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "SQLite export of Nsight Systems" in done.stdout, done
