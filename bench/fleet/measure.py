#!/usr/bin/env python3
"""Measures publishing and reporting a fleet, and compares its numbers with those of other engines.

    bench/fleet/measure.py target/release [--ranks 1024] [--samples 10000] [--work DIR] [--keep]

Seconds, processor seconds and peak resident memory are those of each command, from wait4(2). With `--keep`
the figures are written to bench/results/fleet.json and the page is made again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results import Row, keep

#: The three questions, in SQL that DuckDB and Spark both run. A rank's peak is docs/fleet.md's.
PEAKS = """
select job_id, rank, max(coalesce(process_device_used_bytes, allocator_reserved_bytes,
                                  allocator_allocated_bytes, device_used_bytes)) as peak
from samples where device >= 0 group by job_id, rank
"""
QUESTIONS = {
    "jobs by peak": f"select job_id, max(peak) from ({PEAKS}) group by job_id order by job_id",
    "outlier ranks": f"""
with peaks as ({PEAKS}), middle as (select job_id, {{median}}(peak) as centre from peaks group by job_id),
spread as (select job_id, 1.4826 * {{median}}(abs(peak - centre)) as deviation
           from peaks join middle using (job_id) group by job_id)
select job_id, rank, peak from peaks join middle using (job_id) join spread using (job_id)
where abs(peak - centre) > greatest(6 * deviation, 268435456, 0.05 * centre) order by job_id, rank
""",
    # Every death, counted three ways: by job, by cause and by signature, each with its jobs and machines.
    "deaths by cause": """
select 'cause' as kind, cause as value, count(*) as deaths, count(distinct job_id) as jobs,
       count(distinct host) as hosts from deaths group by cause
union all select 'job', job_id, count(*), 1, null from deaths group by job_id
union all select 'signature', signature, count(*), count(distinct job_id), count(distinct host)
          from deaths where signature <> '' group by signature
order by 1, 2
""",
}


def measured(words: list[str]) -> tuple[float, float, float, str]:
    """Seconds, processor seconds, peak resident MB, and what it printed."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        child = subprocess.Popen(words, stdout=output)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        assert status == 0, f"{words} ended with {os.waitstatus_to_exitcode(status)}"
        output.seek(0)
        return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output.read().decode()


def size(directory: Path) -> int:
    """Bytes on disk."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return sum(path.stat().st_blocks * 512 for path in files)


def sizes(directory: Path, rows: int) -> str:
    """The same in words, in all and a sample."""
    taken = size(directory)
    return f"{taken / 1e6:,.0f} MB, {taken / rows:.1f} bytes a sample"


def answers(report: dict[str, Any]) -> dict[str, list[tuple[Any, ...]]]:
    """What `stormlog fleet --json` says to the three questions."""
    jobs = report["jobs"]
    outliers = (one for one in report["outlier_ranks"] if one["memory"] == "device")
    deaths: list[tuple[Any, ...]] = [
        ("cause", one["cause"], one["count"], one["jobs"], one["hosts"]) for one in report["deaths_by_cause"]
    ]
    deaths += (("job", job["job_id"], job["deaths"], 1, None) for job in jobs if job["deaths"])
    deaths += (
        ("signature", one["signature"], one["count"], one["job_count"], one["host_count"])
        for one in report["deaths_by_signature"]
    )
    for grouping in ("cause", "job"):
        counted = sum(row[2] for row in deaths if row[0] == grouping)
        assert counted == report["totals"]["deaths"], f"{grouping}: {counted} deaths"
    return {
        "jobs by peak": sorted((job["job_id"], job["device_memory"]["peak_bytes"]) for job in jobs),
        "outlier ranks": sorted((one["job_id"], one["rank"], one["peak_bytes"]) for one in outliers),
        "deaths by cause": sorted(deaths, key=lambda row: row[:2]),
    }


def of_duckdb(lake: Path) -> tuple[dict[str, list[tuple[Any, ...]]], dict[str, float]]:
    """The answers of DuckDB, and their seconds."""
    import duckdb

    link = duckdb.connect()
    for table in ("samples", "deaths"):
        files = f"{lake}/{table}/*/*/*.parquet"
        link.execute(f"create view {table} as select * from read_parquet('{files}', union_by_name => true)")
    found, seconds = {}, {}
    for name, question in QUESTIONS.items():
        began = time.perf_counter()
        found[name] = [tuple(row) for row in link.execute(question.format(median="median")).fetchall()]
        seconds[name] = time.perf_counter() - began
    return found, seconds


def of_spark(lake: Path) -> tuple[dict[str, list[tuple[Any, ...]]], dict[str, float]]:
    """The same of Spark."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    for table in ("samples", "deaths"):
        spark.read.parquet(str(lake / table)).createOrReplaceTempView(table)
    found, seconds = {}, {}
    for name, question in QUESTIONS.items():
        began = time.perf_counter()
        rows = spark.sql(question.format(median="median")).collect()
        found[name] = [tuple(row) for row in rows]
        seconds[name] = time.perf_counter() - began
    spark.stop()
    return found, seconds


def main() -> None:
    """Makes a fleet, measures each step, and compares the answers of the engines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binaries", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="fleet-", dir=options.work))
    try:
        rows = measure(options.binaries, work, options.ranks, options.samples)
    finally:
        shutil.rmtree(work)
    for row in rows:
        print(f"{row.what}: {row.ours}" + (f" (goal: {row.goal})" if row.goal else ""))
    if options.keep:
        shape = (
            f"{options.ranks:,} ranks of {options.samples:,} samples, half of the host and half of a device"
        )
        load = f"Load average of the machine at the end: {os.getloadavg()[1]:.1f}."
        notes = [f"{shape}. One run a machine. Rates are by processor time. {load}"]
        keep("fleet", "A fleet", rows, command="bench/fleet/run --keep", notes=notes)


def measure(binaries: Path, work: Path, ranks: int, samples: int) -> list[Row]:
    """The figures, with the answers of every engine compared."""
    stormlog, samples_in_all = str(binaries / "stormlog"), ranks * samples
    runs, lake = work / "runs", work / "lake"
    make = [
        str(binaries / "examples" / "make_fleet"),
        str(runs),
        "--ranks",
        str(ranks),
        "--samples",
        str(samples),
    ]
    seconds, *_ = measured(make)
    expected = json.loads((runs / "expected.json").read_text())["jobs"][0]
    rows = [Row("run directories", f"{seconds:.1f} s to make, {sizes(runs, samples_in_all)}")]

    def step(name: str, goal: str, *words: str) -> tuple[float, str]:
        seconds, cpu, peak, text = measured([stormlog, *words])
        rows.append(Row(name, f"{seconds:.2f} s, {cpu:.2f} s of processor time, {peak:.0f} MB", goal=goal))
        return cpu, text

    _, text = step("`fleet` over run directories", "60 s, 1 GB", "fleet", str(runs), "--json")
    from_runs = json.loads(text)
    cpu, _ = step("`publish`", "300 MB", "publish", str(runs), "--to", str(lake))
    rate = f"{samples_in_all / cpu:,.0f} rows a processor second, {sizes(lake, samples_in_all)}"
    rows.append(Row("`publish`, rate and size", rate, goal="500,000 rows/s"))
    _, text = step("`fleet` over the lake", "5 s, 1 GB", "fleet", str(lake), "--json")
    assert json.loads(text) == from_runs, "a lake and its runs give one report"
    ours = answers(from_runs)
    assert max(expected["device_peaks"]) == ours["jobs by peak"][0][1]
    assert [one[1] for one in ours["outlier ranks"]] == [expected["odd"]]
    assert ("job", expected["job_id"], 1, 1, None) in ours["deaths by cause"], ours["what killed whom"]
    for engine, package, ask in (("DuckDB", "duckdb", of_duckdb), ("Spark", "pyspark", of_spark)):
        if importlib.util.find_spec(package) is None:
            rows.append(Row(f"{engine}, the three questions", "not installed"))
            continue
        found, taken = ask(lake)
        assert found == ours, (engine, found, ours)
        times = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in taken.items())
        rows.append(Row(f"{engine}, the three questions", f"equal numbers; {times}", goal="equal numbers"))
    if importlib.util.find_spec("duckdb"):
        from pruning import pruned

        rows.append(Row("one rank and ten minutes, read by DuckDB", pruned(lake), goal="under 2 %"))
    return rows


if __name__ == "__main__":
    main()
