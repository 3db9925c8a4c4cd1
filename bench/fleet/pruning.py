"""How much of a lake DuckDB reads for one rank and ten minutes, by its own count of bytes.

    python bench/fleet/pruning.py LAKE

Needs `duckdb`. Asked for are the rank in the middle of the largest job, and the ten minutes in the middle of
its samples. Fails where 2 % or more of a lake of at least 200 MB are read.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

TEN_MINUTES = 600 * 1_000_000
#: The share of a lake's bytes that may be read, for lakes of at least this size. The columns of the one or
#: two row groups that have the rank, up to 3.4 MB, are read in any case.
MOST_SHARE = 0.02
LEAST_BYTES = 200_000_000


def pruned(lake: Path) -> str:
    """Asks; gives the share of bytes that was read, in words. Fails where that is more than 2 %."""
    files = list(lake.glob("samples/date=*/job_id=*/part-*.parquet"))
    total = sum(file.stat().st_size for file in files)
    source = (
        f"read_parquet('{lake}/samples/date=*/job_id=*/part-*.parquet', hive_partitioning = true,"
        " hive_types = {'date': DATE, 'job_id': VARCHAR})"
    )
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        job, rank, first, last = _one(
            database,
            f"select job_id, quantile_disc(rank, 0.5), min(epoch_us(ts)), max(epoch_us(ts)) from {source}"
            " group by 1 order by count(*) desc limit 1",
        )
    start = max(first, (first + last) // 2 - TEN_MINUTES // 2)
    question = (
        f"select count(*), max(device_used_bytes) from {source} where job_id = ? and rank = ?"
        " and ts >= make_timestamptz(?) and ts < make_timestamptz(?)"
    )
    # A database of its own: nothing is cached.
    with duckdb.connect() as database, tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.json"
        database.execute("pragma enable_profiling = 'json'")
        database.execute(f"set profiling_output = '{profile}'")
        rows, peak = database.execute(question, [job, rank, start, start + TEN_MINUTES]).fetchall()[0]
        read = json.loads(profile.read_text())["io"]["total_bytes_read"]
    assert rows and peak, "the question has an answer"
    is_small = total < LEAST_BYTES
    assert is_small or read < MOST_SHARE * total, f"{read:,} of {total:,} bytes were read, the goal is 2 %"
    share = f"{100 * read / total:.2f} % of the bytes ({read:,} of {total:,} in {len(files)} files)"
    return f"{share} for {rows} rows of rank {rank}"


def _one(database: Any, statement: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = database.execute(statement).fetchall()[0]
    return row


if __name__ == "__main__":
    print(pruned(Path(sys.argv[1])))
