"""`stormlog run`: real programs, real deaths, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_command import (
    STORMLOG,
    cgroup,
    command,
    in_cgroup,
    is_gone,
    newest,
    pid_of,
    program,
    start,
    stormlog,
    until,
)


def run(directory: Path, *words: str, options: tuple[str, ...] = ()) -> tuple[int, Any, int]:
    """The exit status, the bundle of the program itself, and when it ended."""
    done = subprocess.run(command(directory, *words, options=options), capture_output=True, text=True)
    ended = time.time_ns()
    assert "panicked" not in done.stderr
    return done.returncode, newest(directory), ended


def check(bundle: Any, cause: str, ended: int, status: str = "interrupted") -> None:
    assert bundle["cause"] == cause
    assert bundle["session_status"] == status
    # How near the last event is to the death: test_run_evidence.
    assert bundle["session"]["started_at_ns"] <= bundle["last_event_timestamp_ns"] <= ended
    assert bundle["peak_rss_bytes"] is None or bundle["peak_rss_bytes"] > 0
    assert bundle["evidence"]["verdict"]
    rows = stormlog("sessions", bundle["path"] + "/..")
    assert [row["status"] for row in rows if row["session_id"] == bundle["session_id"]] == [status]


def test_a_clean_run_leaves_a_completed_session_and_no_bundle(tmp_path: Path) -> None:
    code, bundle, _ = run(tmp_path, *program("holds_memory.py", "1"))
    assert (code, bundle) == (0, None)
    (row,) = stormlog("sessions", str(tmp_path))
    assert (row["status"], row["event_count"] >= 5) == ("completed", True)
    assert row["peak_device_used_bytes"] > 30 << 20
    (directory,) = tmp_path.iterdir()
    record = json.loads((directory / "run.json").read_text())
    assert (record["status"], record["exit_code"], record["signal"]) == ("completed", 0, None)


def test_the_programs_streams_arguments_and_status_are_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, *program("echoes.py", "--limit", "-x", "--"), options=("--quiet",)),
        input="hello\n",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "HELLO\n", "complaint\n")


def test_a_script_is_run_with_this_python_and_sees_nothing_of_ours(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(sys.executable, 'STORMLOG_PYTHON' in os.environ)")
    done = subprocess.run(
        command(tmp_path / "runs", str(script), options=("--quiet",)), capture_output=True, text=True
    )
    assert done.stdout.split() == [sys.executable, "False"]


def test_secrets_are_not_written_down(tmp_path: Path) -> None:
    environment = os.environ | {"HF_TOKEN": "hush-hush", "OMP_PLACES": "visible", "PLAIN": "only its name"}
    words = command(tmp_path, sys.executable, "-c", "pass", "--password", "hush-hush")
    subprocess.run(words, env=environment, check=True, capture_output=True)
    (directory,) = tmp_path.iterdir()
    text = (directory / "run.json").read_text()
    assert "hush-hush" not in text
    assert "visible" in text
    assert "PLAIN" in text
    assert "only its name" not in text


@pytest.mark.parametrize(
    ("words", "code", "exception"),
    [
        (("raises.py",), 1, "RuntimeError"),
        (("raises_in_thread.py",), 3, "ValueError"),
        (("exits_at_once.py", "5"), 5, None),
    ],
)
def test_programs_that_end_by_themselves(
    tmp_path: Path, words: tuple[str, ...], code: int, exception: str | None
) -> None:
    status, bundle, ended = run(tmp_path, *program(*words), options=("--bundle", "always"))
    assert status == code
    check(bundle, "exit", ended)
    assert (bundle["exit_code"], bundle["signal"]) == (code, None)
    assert bundle["exception_type"] == exception


def test_an_oom_exception_is_recognised(tmp_path: Path) -> None:
    status, bundle, ended = run(tmp_path, *program("cuda_oom_stand_in.py"))
    assert status == 1
    check(bundle, "oom_exception", ended)
    assert bundle["reason"] == "torch.cuda.OutOfMemoryError"
    assert bundle["custom_metadata"]["traceback"][-1]["file"].endswith("cuda_oom_stand_in.py")


def test_a_limit_turns_a_runaway_into_a_memory_error(tmp_path: Path) -> None:
    status, bundle, ended = run(tmp_path, *program("grows.py"), options=("--limit", "200MiB"))
    assert status == 1
    check(bundle, "memory_error", ended)
    assert bundle["limit_bytes"] == 200 << 20
    assert "RLIMIT_AS" in bundle["evidence"]["verdict"]


@pytest.mark.parametrize(
    ("name", "number"), [("segfaults.py", signal.SIGSEGV), ("aborts.py", signal.SIGABRT)]
)
def test_programs_that_crash(tmp_path: Path, name: str, number: int) -> None:
    status, bundle, ended = run(tmp_path, *program(name))
    assert status == -number
    check(bundle, "signal", ended)
    assert bundle["signal"] == number


def is_seen(directory: Path, after_ns: int) -> bool:
    """Whether the one process of the run has a sample of after that moment."""
    words = [*STORMLOG, "sessions", str(directory), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return any((row["last_event_ns"] or 0) > after_ns for row in rows)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGBUS])
def test_programs_ended_by_a_signal_of_another_process(tmp_path: Path, number: int) -> None:
    with start(tmp_path, *program("holds_memory.py")) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        ready = time.time_ns()
        until(lambda: is_seen(tmp_path, ready))
        os.kill(pid_of(tmp_path), number)
        running.communicate()
        ended = time.time_ns()
    # Python turns SIGINT into KeyboardInterrupt, and then ends itself by the signal.
    assert running.returncode == -number
    bundle = newest(tmp_path)
    if number in (signal.SIGTERM, signal.SIGINT):
        assert bundle is None, "someone stopped it"
        return
    check(bundle, "sigkill" if number == signal.SIGKILL else "signal", ended)
    assert bundle["peak_rss_bytes"] > 30 << 20


def test_a_signal_to_the_supervisor_reaches_the_program_and_its_handler(tmp_path: Path) -> None:
    with start(tmp_path, *program("handles_sigterm.py")) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate()
    assert (running.returncode, out) == (7, "cleaned up\n")


def test_the_kernels_oom_killer_is_named_with_its_limit(tmp_path: Path) -> None:
    with cgroup(160 << 20) as group:
        words = in_cgroup(group, command(tmp_path, *program("grows.py")))
        done = subprocess.run(words, capture_output=True, text=True)
        ended = time.time_ns()
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "OOM killer" in done.stderr
    bundle = newest(tmp_path)
    check(bundle, "cgroup_oom_kill", ended)
    assert bundle["limit_bytes"] == 160 << 20
    assert (bundle["signal"], bundle["exit_code"]) == (9, None)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_have_sessions_of_their_own(tmp_path: Path, method: str) -> None:
    done = subprocess.run(
        command(tmp_path, *program("starts_workers.py", method)), capture_output=True, text=True, check=True
    )
    workers = {int(pid) for pid in done.stdout.split()}
    rows = {row["pid"]: row for row in stormlog("sessions", str(tmp_path))}
    assert workers < set(rows)
    assert all(rows[pid]["peak_device_used_bytes"] > 20 << 20 for pid in workers)


def test_ranks_come_from_each_processs_environment(tmp_path: Path) -> None:
    environment = os.environ | {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "TORCHELASTIC_RUN_ID": "job-9",
    }
    words = command(tmp_path, *program("holds_memory.py", "0.3"))
    subprocess.run(words, env=environment, check=True, capture_output=True)
    (row,) = stormlog("sessions", str(tmp_path))
    assert (row["rank"], row["local_rank"], row["world_size"], row["job_id"]) == (3, 1, 8, "job-9")
    assert "rank3-pid" in row["path"]


def test_the_next_command_finishes_what_a_killed_supervisor_could_not(tmp_path: Path) -> None:
    with start(tmp_path, *program("holds_memory.py")) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        ready = time.time_ns()
        until(lambda: is_seen(tmp_path, ready))
        program_pid = pid_of(tmp_path)
        running.kill()
        running.wait()
        os.kill(program_pid, signal.SIGKILL)
        killed = time.time_ns()
    until(lambda: is_gone(program_pid))
    assert stormlog("oom", "list", str(tmp_path)) == [], "what ended it is not known"
    (directory,) = tmp_path.iterdir()
    record = json.loads((directory / "run.json").read_text())
    assert (record["status"], record["cause"]) == ("interrupted", "unknown")
    assert "holds_memory.py (pid " in record["verdict"]
    assert ready < record["ended_at_ns"] <= killed, "what was seen is kept"
    (session,) = stormlog("sessions", str(tmp_path))
    assert session["status"] == "incomplete"


def test_the_users_own_sitecustomize_and_hooks_still_run(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\nsys.excepthook = lambda *a: print('own hook', a[1])\nCUSTOM = 1\n"
    )
    script = tmp_path / "script.py"
    script.write_text("import sitecustomize\nassert sitecustomize.CUSTOM\nraise RuntimeError('boom')\n")
    words = command(tmp_path / "runs", sys.executable, str(script), options=("--quiet",))
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "own hook boom\n")


def test_start_failure_gives_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path / "runs", "./no-such-program"), capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (127, 1), "as a shell has it"
    assert "no-such-program does not exist" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_other_programs_than_python(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "sh", "-c", "sleep 0.3; kill -9 $$"), capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL
    assert newest(tmp_path)["cause"] == "sigkill"


def test_a_program_that_forks_all_the_time_costs_the_supervisor_nothing_lasting(tmp_path: Path) -> None:
    with start(tmp_path, *program("forks_and_threads.py", "9")) as running:
        readings = []
        for _ in range(4):
            time.sleep(1.9)
            proc = Path(f"/proc/{running.pid}")
            resident = int((proc / "statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            readings.append((len(list((proc / "fd").iterdir())), resident))
        running.communicate()
    assert running.returncode == 0
    descriptors = [count for count, _ in readings]
    assert max(descriptors) < 60, descriptors
    assert readings[-1][1] < readings[0][1] + (8 << 20), readings
    rows = stormlog("sessions", str(tmp_path))
    assert len(rows) > 20
    assert {row["status"] for row in rows} <= {"completed", "incomplete"}
