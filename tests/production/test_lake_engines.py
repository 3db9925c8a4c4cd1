"""The recipes of docs/lake.md in the real engines: the same answers over the same files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import components
import pytest

PAGE = Path(__file__).parents[2] / "docs/lake.md"
STORMLOG = str(Path(sys.executable).with_name("stormlog"))
QUICK = ("duckdb==2.0.0", "polars==2.1.0", "deltalake==1.6.6", "pyarrow")
SPARK = ("pyspark==4.3.0", "deltalake==1.6.6")
RANKS = 5
# Rank 3 holds more than the others, rank 4 is killed.
PROGRAM = """
import os, signal, sys
rank = int(os.environ["RANK"])
kept = bytearray((160 if rank == 3 else 40) << 20)
print("holds", flush=True)
sys.stdin.read()
if rank == 4:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def recipe(name: str) -> str:
    found = re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, name
    return found.group(1)


def publish(runs: Path, lake: Path, *options: str) -> dict[str, object]:
    done = subprocess.run(
        [STORMLOG, "publish", str(runs), "--to", str(lake), "--json", *options],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def samples(runs: Path) -> int:
    """Sessions that have a log."""
    return len(list(runs.glob("*/rank*/log")))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `lake`: five ranks of one job, each recorded by a supervisor of its own."""
    place = tmp_path_factory.mktemp("fleet")
    ranks = []
    for rank in range(RANKS):
        env = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "TORCHELASTIC_RUN_ID": "job/7",
            "STORMLOG_JOB_VERSION": "v1",
        }
        command = [
            STORMLOG,
            "run",
            "-q",
            "--interval",
            "0.02",
            "--dir",
            str(place / "runs"),
            sys.executable,
            "-c",
            PROGRAM,
        ]
        ranks.append(
            subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        )
    for rank in ranks:
        assert rank.stdout and rank.stdout.readline() == b"holds\n"
    # Each has been sampled while it held its memory.
    while samples(place / "runs") < RANKS:
        time.sleep(0.05)
    for rank in ranks:
        rank.communicate(timeout=60)
    report = publish(place / "runs", place / "lake", "--delta")
    assert report["runs"] == RANKS and report["rows"]["deaths"] == 1, report  # type: ignore[index]
    return place


def answers(python: Path, name: str, place: Path) -> list[str]:
    done = subprocess.run(
        [str(python), "-c", recipe(name)], cwd=place, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def expected(place: Path) -> list[str]:
    return answers(components.python_with(*QUICK), "duckdb", place)


def test_duckdb_names_the_rank_that_differs_and_the_one_that_was_killed(expected: list[str]) -> None:
    assert expected[0].startswith("job/7 3 ") and len(expected) == 5
    assert expected[3] == expected[0], "the rank with the highest peak is the one that differs"
    assert expected[4] == "job/7 4 sigkill"


def test_polars_answers_the_same(place: Path, expected: list[str]) -> None:
    assert answers(components.python_with(*QUICK), "polars", place) == expected


def test_spark_answers_the_same(place: Path, expected: list[str]) -> None:
    assert answers(components.python_with(*SPARK), "spark", place) == expected


def test_clickhouse_answers_the_same(place: Path, expected: list[str]) -> None:
    assert answers(components.python_with("chdb==4.4.0"), "clickhouse", place) == expected


def test_delta_log_names_the_same_files(place: Path, expected: list[str]) -> None:
    assert answers(components.python_with(*QUICK), "delta", place) == expected[4:]


def test_spark_reads_exactly_the_files_of_the_delta_log(place: Path, expected: list[str]) -> None:
    # A file that the log does not have, as a merge or another writer leaves it for a while.
    (death,) = place.glob("lake/deaths/date=*/job_id=*/part-*.parquet")
    beside = death.with_name("part-beside.parquet")
    shutil.copyfile(death, beside)
    try:
        found = answers(components.python_with(*SPARK), "spark-delta", place)
    finally:
        beside.unlink()
    assert found == [*expected[:3], *expected[4:]]


def test_delta_table_is_read_from_its_checkpoint(place: Path, tmp_path: Path) -> None:
    (killed,) = (
        path.parent for path in (place / "runs").glob("*/run.json") if '"sigkill"' in path.read_text()
    )
    for number in range(12):
        # The same run again as another one: a session is known by its id.
        run = tmp_path / "runs" / str(number)
        shutil.copytree(killed, run)
        for session in run.glob("rank*/session.json"):
            summary = json.loads(session.read_text())
            session.write_text(json.dumps({**summary, "session_id": f"{summary['session_id']}-{number}"}))
        report = publish(run, tmp_path / "lake", "--delta")
        assert report["rows"]["deaths"] == 1, report  # type: ignore[index]
    program = """
from deltalake import DeltaTable
table = DeltaTable("lake/deaths")
columns = ["job_id", "rank", "cause"]
rows = table.to_pyarrow_dataset().to_table(columns=columns, use_threads=False).to_pylist()
print(table.version(), len(rows), *{tuple(row.values()) for row in rows})
"""
    python = components.python_with(*QUICK)

    def read() -> str:
        done = subprocess.run(
            [str(python), "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert read() == "11 12 ('job/7', 4, 'sigkill')\n"
    log = tmp_path / "lake/deaths/_delta_log"
    assert [path.name for path in log.glob("*.parquet")] == [f"{10:020}.checkpoint.parquet"]
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    assert read() == "11 12 ('job/7', 4, 'sigkill')\n"


def test_types_are_those_that_engines_share(place: Path) -> None:
    python = components.python_with(*QUICK)
    program = """
import glob, pyarrow.parquet as parquet
for table in ("samples", "processes", "deaths", "findings", "heap_holders", "gpu_holders"):
    for path in glob.glob(f"lake/{table}/*/*/*.parquet")[:1]:
        for field in parquet.read_schema(path):
            print(field.type)
"""
    done = subprocess.run(
        [str(python), "-c", program], cwd=place, capture_output=True, text=True, timeout=120
    )
    assert set(done.stdout.splitlines()) == {"timestamp[us, tz=UTC]", "int64", "double", "string", "bool"}, (
        done.stderr
    )


def test_stormlog_sql_answers_over_the_lake_and_changes_nothing(place: Path) -> None:
    def ask(statement: str) -> subprocess.CompletedProcess[str]:
        command = [STORMLOG, "sql", str(place / "lake"), statement, "--csv"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    done = ask("select job_id, rank, cause from deaths")
    if "pip install" in done.stderr:
        pytest.skip("DuckDB is not installed beside the package")
    assert done.stdout.splitlines() == ["job_id,rank,cause", "job/7,4,sigkill"], done.stderr
    assert ask("select count(*) from gpu_holders").stdout.splitlines()[1] == "0"
    assert ask("select min(ts) from samples").returncode == 0
    copied = place / "lake" / "copied.csv"
    for statement in (
        f"copy deaths to '{copied}'",
        f"attach '{copied}' as other",
        "select * from read_text('/etc/passwd')",
    ):
        assert ask(statement).returncode == 2
    assert not copied.exists()
