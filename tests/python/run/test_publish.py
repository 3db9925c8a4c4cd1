"""`stormlog publish`: real runs into a lake, by publishers that are killed and by several at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STORMLOG = Path(sys.executable).with_name("stormlog")
RUNS = 4
# Two ranks of one job, of which one dies of a signal.
PROGRAM = """
import os, signal
kept = bytearray(20 << 20)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def stormlog(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(STORMLOG), *map(str, words)]
    env = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


def info(lake: Path) -> dict[str, int]:
    done = stormlog("lake", "info", lake, "--json")
    assert done.returncode == 0, done.stderr
    return {name: table["rows"] for name, table in json.loads(done.stdout)["tables"].items()}


def publish(runs: Path, lake: Path, *options: str) -> dict[str, Any]:
    done = stormlog("publish", runs, "--to", lake, "--json", *options)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("published") / "runs"
    for number in range(RUNS):
        env = {"RANK": str(number % 2), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": f"job {number // 2}"}
        stormlog("run", "-q", "--dir", runs, "--", sys.executable, "-c", PROGRAM, **env)
    return runs


@pytest.fixture(scope="module")
def expected(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    lake = tmp_path_factory.mktemp("whole") / "lake"
    report = publish(runs, lake)
    assert (
        report["runs"] == RUNS
        and report["rows"]["processes"] == RUNS
        and report["rows"]["deaths"] == RUNS // 2
    )
    assert (lake / "deaths").is_dir() and list(lake.glob("samples/date=*/job_id=job%200/part-*.parquet"))
    return info(lake)


def test_killed_publisher_is_continued_row_by_row(
    runs: Path, expected: dict[str, int], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    killed = subprocess.Popen(
        [str(STORMLOG), "publish", str(runs), "--to", str(lake)], stdout=subprocess.DEVNULL
    )
    # At the first file that is visible, or at one that is being written.
    while killed.poll() is None and not list(lake.glob("samples/*/*/*part-*")):
        pass
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert all(count <= expected[name] for name, count in info(lake).items())
    publish(runs, lake)
    assert info(lake) == expected
    assert publish(runs, lake)["files"] == []


def test_publishers_at_once_publish_each_row_once(
    runs: Path, expected: dict[str, int], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    command = [str(STORMLOG), "publish", str(runs), "--to", str(lake), "--delta"]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(3)]
    for one in both:
        _, complaints = one.communicate(timeout=120)
        assert one.returncode == 0, complaints
    # What one left to another that had claimed it is there as well by now.
    assert info(lake) == expected
    for table in expected:
        versions = sorted(path.name for path in (lake / table / "_delta_log").glob("*.json"))
        assert versions == [f"{number:020}.json" for number in range(len(versions))]


def test_merged_lake_holds_the_same_rows(runs: Path, expected: dict[str, int], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for run in sorted(runs.iterdir()):
        publish(run, lake)
    done = stormlog("compact", lake, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["files_after"] < report["files_before"]
    assert info(lake) == expected
    assert publish(runs, lake)["files"] == []
    assert stormlog("lake", "expire", lake, "--older-than", "1d").returncode == 0
    assert info(lake) == expected
    assert stormlog("compact", runs).returncode == 5


def test_shipped_copy_of_a_run_without_a_launcher_adds_nothing(tmp_path: Path) -> None:
    runs, target, lake = tmp_path / "runs", tmp_path / "target", tmp_path / "lake"
    program = [sys.executable, "-c", "kept = bytearray(20 << 20)"]
    stormlog("run", "-q", "--dir", runs, "--ship", target, "--wait", "--", *program)
    (source,), (copy,) = runs.iterdir(), target.iterdir()
    assert copy.name != source.name
    assert json.loads((copy / "run.json").read_text())["name"] == source.name
    assert publish(target, lake)["files"]
    assert publish(runs, lake)["files"] == [], "it is the same job"
    assert {path.name for path in lake.glob("*/date=*/job_id=*")} == {f"job_id={source.name}"}


def test_missing_or_invalid_lake_is_named(runs: Path, tmp_path: Path) -> None:
    done = stormlog("lake", "info", tmp_path)
    assert done.returncode == 5 and "is not a lake" in done.stderr
    done = stormlog("publish", tmp_path / "nowhere", "--to", tmp_path / "lake")
    assert done.returncode == 5 and "nowhere" in done.stderr
    assert not (tmp_path / "lake").exists(), "a mistake leaves no lake behind"
