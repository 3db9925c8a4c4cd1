"""`stormlog serve` over hostile directories: links, pipes, damage, names that pretend to be metrics."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from exposition import once
from run_command import command, until

EVIL = 'x"} 1\nstormlog_deaths_total{cause="exit"} 99\n# EOF\\'


def ended(directory: Path, **changes: object) -> Path:
    """A run that has ended, as its record says."""
    directory.mkdir(parents=True)
    record = {
        "format": "stormlog.run", "schema_version": 1, "status": "interrupted", "command": ["train.py"],
        "host": "h", "pid": 7, "started_at_ns": 1, "ended_at_ns": 2, "processes": [], **changes,
    }  # fmt: skip
    (directory / "run.json").write_text(json.dumps(record))
    return directory


def test_links_pipes_and_damage_are_passed_over(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    death = {"sigkill": {"count": 1, "last_at_ns": 5}}
    ended(runs / "good", deaths=death)
    ended(elsewhere / "secret", deaths={"signal": {"count": 1}})
    (runs / "link").symlink_to(elsewhere / "secret")
    (runs / "file-link").mkdir()
    (runs / "file-link" / "run.json").symlink_to(elsewhere / "secret" / "run.json")
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "run.json")
    for name, text in (
        ("empty", ""),
        ("text", "{"),
        ("list", "[]"),
        ("deep", "[" * 100_000),
        ("null", "\0" * 64),
    ):
        (runs / name).mkdir()
        (runs / name / "run.json").write_text(text)
    huge = runs / "huge"
    huge.mkdir()
    with (huge / "run.json").open("wb") as file:
        file.truncate(1 << 40)
    odd = {"deaths": {"sigkill": {"count": -1}}, "processes": {"a": 1}, "pid": "x"}
    for number, (key, value) in enumerate(odd.items()):
        ended(runs / f"odd{number}", **{key: value})
    metrics = once(runs)
    assert metrics.deaths() == {"sigkill": 1}
    assert metrics.one("stormlog_scrape_errors_total", reason="run") > 0
    assert metrics.one("stormlog_scrape_duration_seconds") < 30


def test_counts_that_cannot_be_are_bounded(tmp_path: Path) -> None:
    count = {"count": 2**64 - 1, "last_at_ns": 2**63 - 1, "bundle": EVIL * 100}
    for number in range(2):
        ended(tmp_path / "runs" / f"run{number}", deaths={"signal": count, EVIL: count})
    metrics = once(tmp_path / "runs", "--format", "openmetrics")
    assert metrics.one("stormlog_deaths_total", cause="signal") == 2.0**64
    assert metrics.one("stormlog_deaths_total", cause="exit") == 0


def test_names_are_labels_and_nothing_else(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    program = tmp_path / f"{EVIL.replace('/', '')}.py"
    program.write_text("import sys; sys.stdin.read()")
    words = command(runs, sys.executable, str(program), options=("--no-heap", "--no-gpu"))
    env = {**os.environ, "SLURM_JOB_ID": EVIL}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as run:
        metrics = until(lambda: (found := once(runs)).named("stormlog_process_resident_bytes") and found)
        assert metrics.deaths() == {}
        assert metrics.labels("stormlog_run_info")["job_id"] == EVIL.replace("\n", "␊")
        assert run.stdin
        run.stdin.close()


def test_sessions_of_a_living_run_that_are_not_sessions_do_not_stop_the_others(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    words = command(
        runs, sys.executable, "-c", "import sys; sys.stdin.read()", options=("--no-heap", "--no-gpu")
    )
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        until(lambda: runs.exists() and once(runs).named("stormlog_process_resident_bytes"))
        (directory,) = runs.iterdir()
        (real,) = directory.glob("rank0-pid*")
        (directory / "rank1-pid1").symlink_to(real)
        (directory / "rank2-pid2").mkdir()
        os.mkfifo(directory / "rank2-pid2" / "session.json")
        shutil.copytree(real, directory / "rank3-pid3")
        for log in (directory / "rank3-pid3" / "log").iterdir():
            log.write_bytes(os.urandom(1 << 16))
        (directory / "rank4-pid4").mkdir()
        (directory / "rank4-pid4" / "session.json").symlink_to(real / "session.json")
        metrics = once(runs)
        assert {dict(labels)["rank"] for labels in metrics.named("stormlog_process_resident_bytes")} == {"0"}
        assert run.stdin
        run.stdin.close()
