"""`stormlog fleet` over real recorded ranks: one differs, one is killed and restarted, one is missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from opened_page import Opened
from run_command import STORMLOG, command, pid_of, program, until

WORLD = 6
#: Keeps memory, prints that it does, and waits for the end of its input.
TRAIN = """
import os, sys

def build(mebibytes):
    return b"x" * (mebibytes << 20)

kept = build(400 if os.environ["RANK"] == "3" else 16)
print("ready", flush=True)
sys.stdin.read()
"""


def start(root: Path, train: Path, rank: int, attempt: int) -> subprocess.Popen[str]:
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(WORLD),
        "TORCHELASTIC_RUN_ID": "fleet-7",
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "STORMLOG_JOB_NAME": "pretrain",
        "STORMLOG_JOB_VERSION": "v1",
    }
    words = command(root / f"rank{rank}-{attempt}", *program(str(train)), options=("--quiet", "--wait"))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env={**os.environ, **own}, **pipes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five of six ranks; the third is killed and started again."""
    root = tmp_path_factory.mktemp("fleet")
    train = root.parent / "train.py"
    train.write_text(TRAIN)
    ranks = [start(root, train, rank, 0) for rank in range(WORLD - 1)]
    for rank in ranks:
        assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
    # Each has been sampled with its memory in place.
    until(lambda: sum(peak > 16 << 20 for peak in peaks(root).values()) == len(ranks))
    os.kill(pid_of(root / "rank2-0"), signal.SIGKILL)
    ranks[2].communicate()
    assert ranks[2].returncode == -signal.SIGKILL
    again = start(root, train, 2, 1)
    assert again.stdout is not None and again.stdout.readline() == "ready\n"
    until(lambda: peaks(root / "rank2-1").get(2, 0) > 16 << 20)
    for rank in [*ranks[:2], *ranks[3:], again]:
        rank.communicate()
        assert rank.returncode == 0
    return root


def peaks(directory: Path) -> dict[int, int]:
    """The most bytes that a sample of each rank has."""
    words = [*STORMLOG, "query", "events", str(directory), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    found: dict[int, int] = {}
    for row in json.loads(done.stdout) if done.returncode == 0 else []:
        found[row["rank"]] = max(found.get(row["rank"], 0), row["device_used_bytes"] or 0)
    return found


def fleet(*words: str | Path) -> Any:
    done = subprocess.run(
        [*STORMLOG, "fleet", *map(str, words), "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_report_counts_ranks_restarts_and_what_is_missing(runs: Path) -> None:
    report = fleet(runs)
    (job,) = report["jobs"]
    assert (job["job_id"], job["name"], job["version"]) == ("fleet-7", "pretrain", "v1")
    assert (job["world_size"], job["ranks_seen"], job["missing_ranks"]) == (WORLD, 5, [5])
    assert (job["restarts"], job["runs"], job["deaths"]) == (1, 6, 1)
    assert job["duplicated_ranks"] == []
    assert job["host_memory"]["peak_rank"] == 3
    assert job["host_memory"]["peak_bytes"] > 400 << 20
    assert job["device_memory"] is None
    assert report["totals"]["jobs"] == 1 and report["problems"]["torn_count"] == 0


def test_rank_that_differs_is_named_with_its_line(runs: Path) -> None:
    (odd,) = fleet(runs)["outlier_ranks"]
    assert (odd["rank"], odd["attempt"], odd["memory"]) == (3, 0, "host")
    assert 350 << 20 < odd["difference_bytes"] < 450 << 20
    assert odd["line"].startswith("train.py:5 build"), odd


def test_line_of_a_peak_is_known_where_everything_was_freed_before_the_end(tmp_path: Path) -> None:
    """examples/ranks.py: rank 3 holds 320 MB for two seconds, and lets go of it."""
    example = Path(__file__).parents[3] / "examples/ranks.py"
    words = command(tmp_path / "runs", *program(str(example)), options=("--quiet", "--wait"))
    subprocess.run(words, check=True)
    (odd,) = fleet(tmp_path / "runs")["outlier_ranks"]
    assert odd["rank"] == 3 and odd["line"].startswith("ranks.py:18 dispatch"), odd
    assert 280 << 20 < odd["line_more_bytes"] < 350 << 20, odd
    publish = [*STORMLOG, "publish", str(tmp_path / "runs"), "--to", str(tmp_path / "lake")]
    subprocess.run(publish, capture_output=True, check=True)
    assert fleet(tmp_path / "lake")["outlier_ranks"] == [odd]
    analyze = [*STORMLOG, "analyze", str(tmp_path / "runs"), "--json"]
    found = json.loads(subprocess.run(analyze, capture_output=True, text=True).stdout)["findings"]
    (finding,) = [one for one in found if one["id"] == "ranks.outlier"]
    assert "more than the others at ranks.py:18 dispatch ← ranks.py:23 train" in finding["message"], finding
    text = subprocess.run(analyze[:-1], capture_output=True, text=True).stdout
    assert "ranks.py:18 dispatch · at the peak" in "\n".join(text.splitlines()[:8]), text


def test_death_is_counted_by_cause_and_signature(runs: Path) -> None:
    report = fleet(runs)
    (cause,) = report["deaths_by_cause"]
    assert (cause["cause"], cause["count"], cause["jobs"]) == ("sigkill", 1, 1)
    (signature,) = report["deaths_by_signature"]
    assert signature["signature"].startswith("issue:") and signature["count"] == 1
    (first,) = report["first_deaths"]
    assert first["is_certain"] and first["attempt"] == 0
    assert first["candidates"][0]["rank"] == 2


def test_text_begins_with_the_answer(runs: Path) -> None:
    done = subprocess.run([*STORMLOG, "fleet", str(runs)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "rank 2" in "\n".join(lines[:8]) and "rank 3" in "\n".join(lines[:8]), done.stdout
    assert any(line.startswith("Jobs by peak") for line in lines)
    assert "fleet-7: 1 of 6 (5)" in done.stdout


def test_copy_of_a_run_is_counted_once_and_a_torn_recording_is_named(runs: Path, tmp_path: Path) -> None:
    whole = fleet(runs)
    copied = tmp_path / "copy"
    shutil.copytree(runs / "rank1-0", copied)
    both = fleet(runs, copied)
    assert both["problems"]["copy_count"] == 1
    assert both["jobs"] == whole["jobs"] and both["totals"] == whole["totals"]
    torn = tmp_path / "torn"
    shutil.copytree(runs, torn)
    segment = max((torn / "rank4-0").rglob("*.slog"), key=lambda path: path.stat().st_size)
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    report = fleet(torn)
    assert report["problems"]["torn_count"] >= 1, report["problems"]
    assert any(str(segment.parent.parent) in name for name in report["problems"]["torn_files"])
    assert report["jobs"][0]["ranks_seen"] == 5, "what is left of it counts"


def test_run_without_permission_is_named_and_costs_only_itself(runs: Path) -> None:
    # Root may read everything: there, another user asks.
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as place:
        binary = shutil.copy(Path(sys.executable).with_name("stormlog"), place)
        shared = Path(place) / "shared"
        shutil.copytree(runs, shared)
        for path in [Path(place), shared, *shared.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        (denied,) = (shared / "rank1-0").iterdir()
        denied.chmod(0)
        done = subprocess.run(
            [binary, "fleet", str(shared), "--json"],
            capture_output=True,
            text=True,
            cwd="/",
            check=True,
            user=65534 if is_root else None,
        )
        denied.chmod(0o700)
        report = json.loads(done.stdout)
    assert report["jobs"][0]["ranks_seen"] == WORLD - 2
    assert report["problems"]["torn_files"] == [f"{denied}: permission denied: what is in it was not read"]
    assert f"1 input could not be read in full: {denied}" in report["headline"][-1]


def test_job_and_since_choose_rows(runs: Path) -> None:
    assert fleet(runs, "--job", "fleet-7", "--since", "1h")["jobs"] == fleet(runs)["jobs"]
    assert fleet(runs, "--since", "2100-01-01")["totals"]["samples"] == 0

    def refused(*words: str) -> tuple[int, str]:
        done = subprocess.run([*STORMLOG, "fleet", str(runs), *words], capture_output=True, text=True)
        return done.returncode, done.stderr

    code, text = refused("--since", "yesterday")
    assert code == 2 and "2026-11-01" in text
    code, text = refused("--job", "other")
    assert code == 5 and "no rows of job other" in text


def test_directory_without_recordings_is_refused_with_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run([*STORMLOG, "fleet", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 5 and "stormlog publish" in done.stderr, done.stderr


def test_page_shows_the_answer_and_sorts(runs: Path, tmp_path: Path, opened: Opened) -> None:
    out = tmp_path / "fleet.html"
    words = [*STORMLOG, "fleet", str(runs), "--html", str(out)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == str(out)
    assert subprocess.run(words, capture_output=True).returncode == 2, "it is not written over"
    opened.goto(out)
    page = opened.page
    assert "fleet-7" in page.inner_text("#answer")
    assert "rank 3 on " in page.inner_text("#section-0")
    titles = page.eval_on_selector_all("main h2", "all => all.map((one) => one.textContent)")
    assert [title.split(" ")[0] for title in titles][:2] == ["Jobs", "Outlier"]
    page.fill("#filter", "no such job")
    assert page.inner_text("#section-0").endswith("No row contains that.")
    page.keyboard.press("Escape")
    assert page.locator("#section-0 tbody tr").count() == 1
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_lake_gives_the_same_report_as_the_runs_it_was_published_from(runs: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    subprocess.run([*STORMLOG, "publish", str(runs), "--to", str(lake)], check=True, capture_output=True)
    assert fleet(lake) == fleet(runs)
