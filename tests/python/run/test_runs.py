"""`stormlog runs list|prune` and `run --keep`: what is removed, and what never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from run_command import STORMLOG, command, start, stormlog, until


def run(runs: Path, *options: str, code: str = "pass", **env: str) -> Path:
    """A run of its own directory; which one it is."""
    before = set(runs.glob("*")) if runs.exists() else set()
    words = command(runs, sys.executable, "-c", code, options=("--no-heap", "--no-gpu", *options))
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})
    (made,) = set(runs.glob("*")) - before
    (made / "said").write_text(done.stderr)
    return made


def listed(runs: Path) -> list[str]:
    return [row["path"] for row in stormlog("runs", "list", str(runs))]


def prune(runs: Path, *options: str) -> list[str]:
    return [Path(row["path"]).name for row in stormlog("runs", "prune", str(runs), *options)]


KILLED = "import os; os.kill(os.getpid(), 9)"
LIVES = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def test_completed_runs_go_first_and_the_last_death_stays(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first_death, completed = run(runs, code=KILLED), run(runs)
    last_death, newest = run(runs, code=KILLED), run(runs)
    rows: list[dict[str, Any]] = stormlog("runs", "list", str(runs))
    assert [Path(row["path"]) for row in rows] == [first_death, completed, last_death, newest]
    assert {"path", "state", "started_at", "ended_at", "bytes", "verdict"} <= set(rows[0])
    assert [row["state"] for row in rows] == ["failed", "completed", "failed", "completed"]
    assert rows[0]["started_at"].endswith("Z") and rows[0]["bytes"] > 4096 and "SIGKILL" in rows[0]["verdict"]
    assert prune(runs, "--keep", "3", "--dry-run") == [completed.name] and completed.exists()
    assert prune(runs) == [], "by default there is room"
    assert prune(runs, "--keep-days", "1") == []
    assert prune(runs, "--keep", "3") == [completed.name] and not completed.exists()
    assert prune(runs, "--keep-size", "0B") == [newest.name, first_death.name]
    assert prune(runs, "--keep", "0") == [], "the last death is never removed"
    assert listed(runs) == [str(last_death)]


def test_a_run_removes_older_ones_and_prints_one_line(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first = run(runs)
    second = run(runs, "--keep", "1", STORMLOG_KEEP="all")
    assert not first.exists() and (second / "said").read_text().count("stormlog: removed ") == 1
    third = run(runs, STORMLOG_KEEP="all", STORMLOG_KEEP_SIZE="1KiB")
    assert second.exists() and "removed" not in (third / "said").read_text()
    fourth = run(runs, "--quiet", STORMLOG_KEEP_SIZE="1KiB")
    assert [path.name for path in runs.iterdir()] == [fourth.name]
    assert (fourth / "said").read_text() == ""


def test_only_ended_runs_of_this_directory_are_removed(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    outside = run(elsewhere)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "weights").write_text("kept")
    hostile = run(runs)
    (hostile / "link").symlink_to(precious)
    (hostile / "rank0-link").symlink_to(precious, target_is_directory=True)
    (runs / "linked").symlink_to(outside)
    forged = runs / "forged"
    forged.mkdir()
    (forged / "run.json").symlink_to(outside / "run.json")
    foreign = runs / "foreign"
    foreign.mkdir()
    (foreign / "run.json").write_text(json.dumps({"format": "another.program", "status": "completed"}))
    newer = runs / "newer"
    newer.mkdir()
    record = json.loads((outside / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps({**record, "schema_version": 999}))
    damaged = runs / "damaged"
    damaged.mkdir()
    (damaged / "run.json").write_bytes(b"\xff{" * 1000)
    last_death = run(runs, code=KILLED)
    with start(runs, sys.executable, "-c", LIVES) as living:
        assert living.stdout
        program = int(living.stdout.readline())
        (running,) = until(lambda: set(listed(runs)) - {str(hostile), str(last_death)})
        try:
            assert prune(runs, "--keep", "0", "--keep-days", "0") == [hostile.name]
            living.kill()
            living.wait()
            assert prune(runs, "--keep", "0") == [], "its supervisor was killed, its program lives"
        finally:
            os.kill(program, 9)
        # Now it is the last death itself.
        assert until(lambda: prune(runs, "--keep", "0")) == [last_death.name]
    assert Path(running, "run.json").exists()
    assert (precious / "weights").read_text() == "kept" and (outside / "run.json").exists()
    left = {path.name for path in runs.iterdir()}
    assert left >= {"linked", "forged", "foreign", "newer", "damaged"}
    assert subprocess.run([*STORMLOG, "runs", "prune", str(runs / "foreign")]).returncode == 0
