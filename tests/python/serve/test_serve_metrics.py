"""`stormlog serve --once` over real runs: growth, deaths of workers, removed runs, names that clash."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from exposition import Metrics, once
from run_command import STORMLOG, cgroup, command, in_cgroup, until

QUICK = ("--no-heap", "--no-gpu", "--no-why")
# Grows when it is asked to, and ends at the end of its input.
GROWS = """
import sys
kept = []
print("ready", flush=True)
for line in sys.stdin:
    kept.append(bytearray(b"x" * (int(line) << 20)))
    print("grown", flush=True)
"""
# Workers that die as they are asked to, once they are recorded; the program lives on.
WORKERS = """
import glob, multiprocessing, os, signal, sys, time
def die(how):
    while not glob.glob(f"{os.environ['STORMLOG_RUN_DIR']}/rank0-pid{os.getpid()}/session.json"):
        time.sleep(0.01)
    signal.pause() if how == "parent" else os.kill(os.getpid(), getattr(signal, how))
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    for how in sys.argv[1:]:
        worker = multiprocessing.Process(target=die, args=(how,))
        worker.start()
        if how == "parent":
            worker.terminate()
        worker.join()
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def living(runs: Path, code: str, *arguments: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A run whose program is ready; it ends with the block."""
    program = runs.parent / "train.py"
    program.write_text(code)
    words = command(runs, sys.executable, str(program), *arguments, options=QUICK)
    pipe = subprocess.PIPE
    known = {**os.environ, **env}
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=known
    ) as run:
        assert run.stdin and run.stdout
        try:
            assert run.stdout.readline() == "ready\n"
            yield run
        finally:
            run.stdin.close()
            run.wait()


def run(runs: Path, code: str, *before: str, **env: str) -> int:
    words = command(runs, sys.executable, "-c", code, options=QUICK)
    return subprocess.run([*before, *words], stderr=subprocess.DEVNULL, env={**os.environ, **env}).returncode


def seen(path: Path, condition: Callable[[Metrics], object]) -> Metrics:
    """The first metrics of which this is true."""

    def look() -> Metrics | None:
        metrics = once(path)
        return metrics if condition(metrics) else None

    found: Metrics = until(look)
    return found


def test_a_living_run_is_read_while_it_grows_and_has_no_series_when_it_has_ended(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with living(runs, GROWS, SLURM_JOB_ID="4711") as train:
        assert train.stdin and train.stdout
        before = seen(runs, lambda metrics: metrics.named("stormlog_process_resident_bytes"))
        first = before.one("stormlog_process_resident_bytes", job_id="4711", rank="0", role="main")
        train.stdin.write("64\n")
        train.stdin.flush()
        assert train.stdout.readline() == "grown\n"
        grown = seen(
            runs,
            lambda metrics: metrics.one("stormlog_process_resident_bytes", role="main") > first + (60 << 20),
        )
        rank = {"job_id": "4711", "rank": "0"}
        assert grown.one("stormlog_window_max_bytes", what="resident", window="1m", **rank) >= first + (
            60 << 20
        )
        assert grown.one("stormlog_limit_bytes", **rank) > 0
        info = grown.labels("stormlog_run_info")
        (directory,) = runs.iterdir()
        assert (info["run_id"], info["local_rank"], info["world_size"]) == (directory.name, "0", "1")
        assert info["command"].endswith("train.py") and info["version"]
        names = {label for _, labels in grown.series for label, _ in labels}
        assert not names & {"pid", "path"}
        samples = [labels for name, labels in grown.series if dict(labels).get("rank")]
        assert len(samples) <= 60 and grown.one("stormlog_runs", state="running") == 1
    after = once(runs)
    assert not any(dict(labels).get("rank") for _, labels in after.series), (
        "no series of a run that has ended"
    )
    assert after.deaths() == {} and after.one("stormlog_runs", state="completed") == 1
    assert len(after.named("stormlog_deaths_total")) == 8, "every cause is there from 0"


def test_deaths_of_workers_count_while_the_program_lives_and_deliberate_ends_do_not(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with living(runs, WORKERS, "SIGKILL", "SIGSEGV", "parent", "SIGSEGV"):
        during = seen(runs, lambda metrics: metrics.deaths().get("signal") == 2)
        died_at = during.one("stormlog_last_death_timestamp_seconds", cause="signal")
        assert died_at > 1.7e9
        openmetrics = once(runs, "--format", "openmetrics")
        (directory,) = runs.iterdir()
        bundles = {path.name for path in directory.glob("*/oom_dump_*")}
        exemplars = [labels["bundle"] for labels in openmetrics.exemplars.values()]
        assert set(exemplars) <= bundles and exemplars
        assert openmetrics.text.endswith("# EOF\n")
    after = once(runs)
    assert after.deaths() == during.deaths(), "the same count from run.json as from the sessions"
    assert after.one("stormlog_last_death_timestamp_seconds", cause="signal") == pytest.approx(died_at)


def test_a_process_that_died_before_the_first_look_is_counted(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    assert run(runs, "import os; os.kill(os.getpid(), 11)") == -signal.SIGSEGV
    assert run(runs, "raise SystemExit(3)") == 3
    metrics = once(runs)
    assert metrics.deaths() == {"signal": 1}, "a chosen exit code is no death"
    states = {
        state: metrics.one("stormlog_runs", state=state) for state in ("failed", "deliberate", "interrupted")
    }
    assert states == {"failed": 1, "deliberate": 1, "interrupted": 0}


def test_a_kill_of_the_cgroup_has_its_cause_and_its_limit(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with cgroup(96 << 20) as group:
        words = command(
            runs, sys.executable, "-c", "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
        )
        subprocess.run(in_cgroup(group, words), stderr=subprocess.DEVNULL)
    assert once(runs).deaths() == {"cgroup_oom_kill": 1}


def test_counters_do_not_fall_when_runs_are_removed(tmp_path: Path) -> None:
    runs, state = tmp_path / "runs", tmp_path / "state.json"
    runs.mkdir()
    for _ in range(2):
        run(runs, "import os; os.kill(os.getpid(), 11)")
    assert once("--state", state, runs).deaths() == {"signal": 2}
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    shutil.rmtree(min(runs.iterdir()))
    assert once(runs).deaths() == {"signal": 1}, "without a state only what is there"
    kept = once("--state", state, runs)
    assert kept.deaths() == {"signal": 2} and kept.one("stormlog_runs", state="failed") == 1
    run(runs, "import os; os.kill(os.getpid(), 11)")
    assert once("--state", state, runs).deaths() == {"signal": 3}
    assert once("--state", state, runs).deaths() == {"signal": 3}, "read again, not counted again"


def test_a_foreign_state_file_is_refused_and_kept(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes")
    words = [*STORMLOG, "serve", "--once", "--state", str(notes), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "not a state file" in done.stderr and notes.read_text() == "my notes"


def test_two_living_runs_of_one_name_get_slots_that_stay(tmp_path: Path) -> None:
    runs, state = tmp_path / "runs", tmp_path / "state.json"
    runs.mkdir()
    slots: Callable[[Metrics], list[str]] = lambda metrics: sorted(  # noqa: E731
        dict(labels).get("slot", "")
        for labels in metrics.named("stormlog_process_resident_bytes", role="main")
    )
    with living(runs, GROWS):
        until(lambda: slots(once("--state", state, runs)) == [""])
        with living(runs, GROWS):
            until(lambda: slots(once("--state", state, runs)) == ["", "1"])
            info = once("--state", state, runs).named("stormlog_run_info")
            assert len({dict(labels)["run_id"] for labels in info}) == 2
    with living(runs, GROWS):
        until(lambda: slots(once("--state", state, runs)) == [""])


def test_ranks_of_a_launcher_are_distinguished_and_it_counts_as_other(tmp_path: Path) -> None:
    launcher = """
import os, subprocess, sys
code = "import sys; sys.stdin.read()"
job = {**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job"}
ranks = [
    subprocess.Popen([sys.executable, "-c", code], stdin=-1, env={**job, "RANK": rank, "LOCAL_RANK": rank})
    for rank in "01"
]
print("ready", flush=True)
sys.stdin.read()
for rank in ranks:
    rank.stdin.close()
    rank.wait()
"""
    runs = tmp_path / "runs"
    runs.mkdir()
    with living(runs, launcher):
        main = {"role": "main", "job_id": "job"}
        metrics = seen(runs, lambda metrics: len(metrics.named("stormlog_processes", **main)) == 2)
        assert {dict(labels)["rank"] for labels in metrics.named("stormlog_processes", **main)} == {"0", "1"}
        assert metrics.labels("stormlog_run_info", rank="1")["world_size"] == "2"
        assert metrics.one("stormlog_processes", rank="0", role="other") == 1


def test_a_run_whose_supervisor_was_killed_is_finished_by_the_reader(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    words = command(
        runs, sys.executable, "-c", "import time; time.sleep(600)", options=("--die-with-supervisor", *QUICK)
    )
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as supervisor:
        until(lambda: runs.exists() and once(runs).named("stormlog_process_resident_bytes"))
        supervisor.send_signal(signal.SIGKILL)
    metrics = seen(runs, lambda metrics: metrics.one("stormlog_runs", state="interrupted") == 1)
    assert not metrics.named("stormlog_process_resident_bytes")


def test_textfile_is_whole_readable_and_has_no_command(tmp_path: Path) -> None:
    runs, file = tmp_path / "runs", tmp_path / "stormlog.prom"
    runs.mkdir()
    with living(runs, GROWS):
        until(lambda: once(runs).named("stormlog_process_resident_bytes"))
        words = [*STORMLOG, "serve", "--once", "--textfile", str(file), str(runs)]
        subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", *words], check=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    metrics = Metrics(file.read_text())
    assert "command" not in metrics.labels("stormlog_run_info") and "# EOF" not in metrics.text
    wrong = [*STORMLOG, "serve", "--once", "--textfile", str(tmp_path / "metrics.txt"), str(runs)]
    assert subprocess.run(wrong, capture_output=True).returncode == 2
