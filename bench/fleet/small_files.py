#!/usr/bin/env python3
"""Measures a lake of 100,000 small files, as it is where every machine publishes its own short run.

    bench/fleet/run --small [--jobs 500] [--ranks 100] [--samples 20] [--delta] [--work DIR] [--keep]

500 jobs of 100 machines with one rank each: 50,000 publications of a file of samples and a file of processes.
Then `publish` of everything again, `fleet`, `sql`, `compact`, and the same three once more. The report and
the counts have to be equal before and after. `sql` is asked where the interpreter has the package and DuckDB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import measured

from results import Row, keep

QUESTION = "select count(*), count(distinct session_id), sum(device_used_bytes)::hugeint from samples"


class Measure:
    """The commands over one lake, each with a row of the table."""

    def __init__(self, stormlog: str, runs: Path, lake: Path) -> None:
        self.stormlog, self.runs, self.lake = stormlog, runs, lake
        self.rows: list[Row] = []

    def step(self, name: str, *words: str) -> str:
        """One command."""
        seconds, cpu, peak, text = measured(list(words))
        self.rows.append(Row(name, f"{seconds:.1f} s, {cpu:.1f} s of processor time, {peak:.0f} MB"))
        print(f"{name}: {self.rows[-1].ours}", flush=True)
        return text

    def answers(self, when: str) -> tuple[Any, Any]:
        """The report and what SQL counts; and that publishing everything again adds nothing."""
        again = self.step(
            f"`publish` again, {when}",
            self.stormlog,
            "publish",
            str(self.runs),
            "--to",
            str(self.lake),
            "--json",
        )
        assert not any(json.loads(again)["rows"].values()), again
        report = json.loads(self.step(f"`fleet`, {when}", self.stormlog, "fleet", str(self.lake), "--json"))
        counted = None
        sql = Path(sys.executable).with_name("stormlog")
        if sql.exists():
            text = self.step(f"`sql`, {when}", str(sql), "sql", str(self.lake), QUESTION, "--json")
            counted = json.loads(text)
        return report, counted


def main() -> None:
    """Makes the lake, measures, compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("binaries", type=Path)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="small-files-", dir=options.work))
    try:
        rows = measure(options, work)
    finally:
        shutil.rmtree(work)
    if options.keep:
        shape = (
            f"{options.jobs:,} jobs of {options.ranks} machines, each a rank of {options.samples} samples"
            " that was published by itself. The report and the counts of SQL are equal before and after."
        )
        name = "fleet-small-files-delta" if options.delta else "fleet-small-files"
        title = "A lake of small files" + (", with a Delta log" if options.delta else "")
        command = f"bench/fleet/run --small{' --delta' if options.delta else ''} --keep"
        keep(name, title, rows, command=command, notes=[shape])


def measure(options: argparse.Namespace, work: Path) -> list[Row]:
    """The figures."""
    examples, runs, lake = options.binaries / "examples", work / "runs", work / "lake"
    shape = ["--jobs", options.jobs, "--ranks", options.ranks, "--samples", options.samples]
    measured([str(examples / "make_fleet"), str(runs), *(str(word) for word in shape), "--ranks-a-host", "1"])
    own = Measure(str(options.binaries / "stormlog"), runs, lake)
    words = [str(examples / "publish_each"), str(runs), str(lake), *(["--delta"] if options.delta else [])]
    runs_in_all = options.jobs * options.ranks
    text = own.step(f"{runs_in_all:,} publications, one after the other", *words)
    made = int(text.split()[0])
    # Samples and a process of each run, one death a job, and what the rules find.
    assert made >= 2 * runs_in_all + options.jobs, made
    before = own.answers(f"{made:,} files")
    assert before[0]["totals"]["samples"] == runs_in_all * options.samples
    merged = json.loads(own.step("`compact`", own.stormlog, "compact", str(lake), "--json"))
    assert merged["files_after"] == merged["partitions"] >= 2 * options.jobs, merged
    after = own.answers(f"{made - merged['files_before'] + merged['files_after']:,} files")
    assert after == before, (after, before)
    return own.rows


if __name__ == "__main__":
    main()
