"""Which ends of a program leave a bundle, whom it names, and what a run leaves on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_command import STORMLOG, command, stormlog


def run(directory: Path, *words: str, options: tuple[str, ...] = ()) -> Any:
    """The record of a run."""
    subprocess.run(command(directory, *words, options=("--quiet", *options)), capture_output=True)
    (path,) = directory.glob("*/run.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("words", "cause", "bundles"),
    [
        (["sh", "-c", "exit 3"], "exit", "always"),
        ([sys.executable, "-c", "import sys; sys.exit(3)"], "exit", "always"),
        (["sh", "-c", "kill -TERM $$"], "signal", "always"),
        (["sh", "-c", "kill -INT $$"], "signal", "always"),
        (["sh", "-c", "kill -PIPE $$"], "signal", "always"),
        (["sh", "-c", "kill -SEGV $$"], "signal", "crash always"),
        (["sh", "-c", "kill -KILL $$"], "sigkill", "crash always"),
        ([sys.executable, "-c", "1 / 0"], "exit", "crash always"),
        ([sys.executable, "-c", "raise MemoryError"], "memory_error", "oom crash always"),
    ],
)
def test_ends_leave_a_bundle_by_what_ended_them(
    tmp_path: Path, words: list[str], cause: str, bundles: str
) -> None:
    for policy in ("oom", "crash", "always", ""):
        directory = tmp_path / (policy or "default")
        record = run(directory, *words, options=("--bundle", policy) if policy else ())
        assert (record["cause"], bool(record["verdict"])) == (cause, True), policy
        rows = stormlog("oom", "list", str(directory))
        assert bool(rows) == ((policy or "crash") in bundles.split()), (policy, rows)


def test_the_program_named_is_the_one_that_died(tmp_path: Path) -> None:
    child = tmp_path / "fails.py"
    child.write_text("import time\ntime.sleep(0.3)\nraise RuntimeError('boom')\n")
    parent = tmp_path / "launches.py"
    parent.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, {str(child)!r}])\n")
    record = run(tmp_path / "runs", sys.executable, str(parent))
    assert record["exit_code"] == 0
    (row,) = stormlog("oom", "list", str(tmp_path / "runs"))
    verdict = stormlog("oom", "show", row["path"])["evidence"]["verdict"]
    assert verdict.startswith("fails.py (pid "), verdict


ALLOCATES_AT_ITS_END = "import os, time\ntime.sleep(1.2)\nx = b'x' * (150 << 20)\nos._exit(0)\n"


def test_allocation_after_the_last_sample_counts_for_the_peak(tmp_path: Path) -> None:
    # By a small process: the peak of a child begins with that of the process that started it.
    measure = (
        "import os, sys\n"
        "program = os.posix_spawn(sys.executable, [sys.executable, '-c', sys.argv[1]], os.environ)\n"
        "print(os.wait4(program, 0)[2].ru_maxrss * 1024)"
    )
    words = [sys.executable, "-c", measure, ALLOCATES_AT_ITS_END]
    bare = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    words = [*STORMLOG, "run", "--json", "--dir", str(tmp_path), "--interval", "30", "--no-torch"]
    done = subprocess.run(
        [*words, sys.executable, "-c", ALLOCATES_AT_ITS_END], capture_output=True, text=True, check=True
    )
    outcome = json.loads(done.stderr)
    assert abs(outcome["peak_rss_bytes"] - bare) < 16 << 20, (outcome["peak_rss_bytes"], bare)
    assert outcome["processes"][0]["peak_rss_bytes"] == outcome["peak_rss_bytes"]
    assert outcome["peak_total_rss_bytes"] >= outcome["peak_rss_bytes"]
    (record,) = tmp_path.glob("*/run.json")
    assert json.loads(record.read_text())["peak_rss_bytes"] == outcome["peak_rss_bytes"]


def test_a_childs_peak_is_not_the_programs(tmp_path: Path) -> None:
    holds = "x = b'x' * (200 << 20)\nimport time\ntime.sleep(1)"
    words = [
        sys.executable,
        "-c",
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {holds!r}])",
    ]
    record = run(tmp_path, *words)
    main, child = record["processes"]
    assert child["peak_rss_bytes"] > 200 << 20
    assert main["peak_rss_bytes"] < 100 << 20
    assert record["peak_rss_bytes"] == child["peak_rss_bytes"]


@pytest.mark.parametrize(
    "words", [["false"], ["true"], ["sh", "-c", "exit 7"]], ids=["false", "true", "exit"]
)
def test_a_short_run_leaves_no_more_than_64_kilobytes(tmp_path: Path, words: list[str]) -> None:
    run(tmp_path, *words)
    (directory,) = tmp_path.iterdir()
    blocks = sum(path.lstat().st_blocks for path in [directory, *directory.rglob("*")])
    assert blocks * 512 <= 64_000, [str(path) for path in directory.rglob("*")]
