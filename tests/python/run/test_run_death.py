"""`stormlog run`: the supervisor ends as the program did; a program outlives it unless asked not to."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_command import is_gone, until
from run_signals import run


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 10, 11, 13, 14, 15, 24, 34, 37, 64])
def test_a_signal_that_ended_the_program_ends_the_supervisor(tmp_path: Path, number: int) -> None:
    reset = "" if number == signal.SIGKILL else f"signal.signal({number}, signal.SIG_DFL)"
    code = f"import os, signal\n{reset}\nos.kill(os.getpid(), {number})"
    done = subprocess.run(run(tmp_path, sys.executable, "-c", code), capture_output=True)
    assert (done.returncode, done.stderr) == (-number, b"")
    (record,) = tmp_path.glob("*/run.json")
    assert f'"signal": {number}' in record.read_text(), "the run is finished before"


@pytest.mark.skipif(
    Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"), reason="cores go to a program"
)
def test_one_core_is_left_and_it_is_the_programs(tmp_path: Path) -> None:
    def allow() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    place = tmp_path / "place"
    place.mkdir()
    words = run(tmp_path / "runs", "sh", "-c", "kill -QUIT $$")
    done = subprocess.run(words, cwd=place, preexec_fn=allow)
    assert done.returncode == -signal.SIGQUIT
    cores = list(place.glob("core*"))
    assert len(cores) <= 1
    assert all(b"kill -QUIT $$\x00" in core.read_bytes() for core in cores)
    assert not any(b"stormlog_supervise" in core.read_bytes() for core in cores)


def test_ctrl_c_stops_a_shells_loop(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "print('up', flush=True); input()"]
    loop = 'while :; do "$@"; echo again; done'
    words = ["bash", "-c", loop, "bash", *run(tmp_path, *program)]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    ) as running:
        assert running.stdout and running.stdout.readline() == "up\n"
        os.killpg(running.pid, signal.SIGINT)
        assert running.stdout.read() == ""
    assert running.returncode == -signal.SIGINT


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="needs a PID namespace")
def test_the_first_process_of_a_namespace_exits_with_the_shells_number(tmp_path: Path) -> None:
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    for number in (9, 15):
        words = run(tmp_path, "sh", "-c", f"kill -{number} $$")
        assert subprocess.run([*inside, *words]).returncode == 128 + number


@pytest.mark.parametrize("option", [(), ("--die-with-supervisor",)])
def test_a_killed_supervisor_takes_the_program_with_it_only_where_asked(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    code = "import os; print(os.getpid(), flush=True); input(); print('lived', flush=True)"
    words = run(tmp_path, sys.executable, "-c", code, options=option)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdin
        program = int(running.stdout.readline())
        running.kill()
        running.wait()
        if option:
            until(lambda: is_gone(program))
        else:
            running.stdin.write("\n")
            running.stdin.flush()
        assert running.stdout.read() == ("" if option else "lived\n")
