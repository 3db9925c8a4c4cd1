"""`stormlog run`: what surrounds the program is its own: ignored signals, broken streams, another cgroup."""

from __future__ import annotations

import csv
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_command import STORMLOG, cgroup, command, newest, pid_of, program, stormlog, until

GROWS_WHEN_TOLD = """
import sys, time
print("ready", flush=True)
sys.stdin.readline()
held = []
while True:
    held.append(b"x" * (1 << 20))
    time.sleep(0.005)
"""


def signals_of(words: list[str], before: Callable[[], object]) -> dict[str, int]:
    """The masks a program that is not Python starts with."""
    done = subprocess.run(words, capture_output=True, text=True, check=True, preexec_fn=before)
    rows = (line.split(":") for line in done.stdout.splitlines())
    # The C library's, after posix_spawn, and the recording library's SIGBUS: its capture may be truncated.
    own = (1 << 31) | (1 << 32) | (1 << (signal.SIGBUS - 1))
    return {name: int(mask, 16) & ~own for name, mask in rows}


@pytest.mark.parametrize("ignored", [[], [signal.SIGHUP], [signal.SIGINT, signal.SIGUSR1]])
def test_only_ignored_signals_stay_ignored(tmp_path: Path, ignored: list[signal.Signals]) -> None:
    words = ["grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status"]

    def before() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    assert signals_of(words, before) == signals_of(command(tmp_path, *words), before)


@pytest.mark.parametrize("option", [(), ("--limit", "1GiB")])
def test_the_locale_is_the_programs_own(tmp_path: Path, option: tuple[str, ...]) -> None:
    """Python sets LC_CTYPE for itself where there is none; other programs are not to see that."""
    plain = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    ours = {"PYTHONPATH", "STORMLOG_RUN_DIR", "LD_PRELOAD", "STORMLOG_HEAP"}
    for number, given in enumerate([plain, plain | {"LC_CTYPE": "C"}, plain | {"LC_CTYPE": "C.UTF-8"}]):
        words = command(tmp_path / str(number), "env", options=(*option, "--quiet"))
        done = subprocess.run(words, env=given, capture_output=True, text=True, check=True)
        seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
        assert {name: seen[name] for name in seen.keys() - ours} == {
            name: given[name] for name in given.keys() - ours
        }


def test_ignored_hangup_is_not_forwarded(tmp_path: Path) -> None:
    def before() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    words = command(tmp_path, sys.executable, "-c", "print('ready', flush=True); input(); print('alive')")
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=before,
    ) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGHUP)
        out, _ = running.communicate("\n")
    assert (running.returncode, out) == (0, "alive\n")


@pytest.mark.parametrize("option", [(), ("--json",), ("--quiet",)])
def test_closed_stream_does_not_change_the_exit_status(tmp_path: Path, option: tuple[str, ...]) -> None:
    words = command(tmp_path, "sh", "-c", "exit 9", options=option)
    read, write = os.pipe()
    os.close(read)
    assert subprocess.run(words, stderr=write).returncode == 9
    os.close(write)
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(words, stderr=full).returncode == 9


def test_a_file_that_may_not_grow_costs_records_and_not_the_program(tmp_path: Path) -> None:
    def before() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    words = command(tmp_path, "sh", "-c", "sleep 0.3; exit 9", options=("--quiet", "--no-exceptions"))
    # A record of the environment must fit.
    small = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(words, preexec_fn=before, env=small, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (9, "")


def test_modules_and_code_are_run_and_named(tmp_path: Path) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__main__.py").write_text("import sys; print('ran', *sys.argv[1:])")
    started = [
        (["-m", "trainer", "a.py"], "trainer"),
        ([sys.executable, "-m", "trainer", "a.py"], "trainer"),
        ([str(package), "a.py"], "trainer"),
        (["-c", "import sys; print('ran', *sys.argv[1:])", "a.py"], Path(sys.executable).name),
    ]
    for number, (words, name) in enumerate(started):
        runs = tmp_path / f"runs-{number}"
        done = subprocess.run(command(runs, *words), capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "ran a.py\n"), done.stderr
        (directory,) = runs.iterdir()
        assert f"Z-{name.split('.')[0]}" in directory.name
        assert f"stormlog: {name} (pid " in done.stderr


def test_a_mistyped_option_is_not_taken_for_a_program(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, "--intervall", "1", "true"), capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "unknown option --intervall" in done.stderr


def test_failed_thread_is_reported_when_the_program_exits_0(tmp_path: Path) -> None:
    code = "import threading; threading.Thread(target=lambda: [][1], name='loader').start()"
    words = command(tmp_path, sys.executable, "-c", code)
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0
    (raised,) = [line for line in done.stderr.splitlines() if line.startswith("  raised ")]
    assert "IndexError: list index out of range" in raised and raised.endswith("in thread loader")
    assert stormlog("oom", "list", str(tmp_path)) == []


def test_cause_is_reported_whatever_failed_after_it(tmp_path: Path) -> None:
    words = command(tmp_path, *program("main_fails_before_its_thread.py"))
    assert subprocess.run(words, capture_output=True).returncode == 1
    bundle = newest(tmp_path)
    assert (bundle["cause"], bundle["exception_type"]) == ("memory_error", "MemoryError")


def test_the_peak_of_a_program_that_ends_before_its_second_sample(tmp_path: Path) -> None:
    run = [*STORMLOG, "run", "--json", "--dir", str(tmp_path), "--interval", "60"]
    done = subprocess.run([*run, *program("holds_memory.py", "2")], capture_output=True, text=True)
    (row,) = json.loads(done.stderr)["processes"]
    assert row["peak_rss_bytes"] > 30 << 20


def without_the_kernels_log() -> None:
    """Gives up both capabilities that may read a restricted log: even root is without them after exec."""
    drop, sys_admin, syslog = 24, 21, 34
    for capability in (sys_admin, syslog):
        ctypes.CDLL(None).prctl(drop, capability, 0, 0, 0)


def test_a_killer_in_a_cgroup_of_the_programs_own_is_named_without_the_kernels_log(tmp_path: Path) -> None:
    """As `systemd-run --scope` does, the program is moved after its start."""
    runs = tmp_path / "runs"
    words = command(runs, sys.executable, "-c", GROWS_WHEN_TOLD)
    with (
        cgroup(100 << 20) as group,
        subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=without_the_kernels_log,
        ) as running,
    ):
        assert running.stdout and running.stdout.readline() == "ready\n"
        (group / "cgroup.procs").write_text(str(pid_of(runs)))
        until(lambda: knows_limit(runs, 100 << 20))
        _, err = running.communicate("\n")
    bundle = newest(runs)
    assert running.returncode == -signal.SIGKILL
    assert "killed by the kernel's OOM killer" in err and f"cgroup /{group.name} reached its limit" in err
    assert "limit 100.0 MiB" in err
    assert (bundle["cause"], bundle["limit_bytes"]) == ("cgroup_oom_kill", 100 << 20)


def knows_limit(directory: Path, limit: int) -> bool:
    """Whether the recording has seen the limit: samples tell the memory that could be had."""
    (run,) = directory.iterdir()
    exported = directory.parent / "events.csv"
    if subprocess.run([*STORMLOG, "convert", str(run), str(exported)], capture_output=True).returncode != 0:
        return False  # nothing is recorded yet
    with exported.open(newline="") as file:
        return str(limit) in {row["device_total_bytes"] for row in csv.DictReader(file)}


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb here")
def test_a_process_is_attached_to_again_without_a_name_for_the_file(tmp_path: Path) -> None:
    with subprocess.Popen(program("holds_memory.py", "600"), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        attach = [*STORMLOG, "attach", str(running.pid), "--heap", "--quiet", "--duration", "0.1"]
        for _ in range(2):
            subprocess.run(attach, check=True, cwd=tmp_path)
        detach = [*STORMLOG, "detach", str(running.pid)]
        done = subprocess.run(detach, capture_output=True, text=True)
        running.kill()
    message = f"Error: process {running.pid} is not being recorded; `stormlog attach PID --heap` "
    assert (done.returncode, done.stderr) == (2, f"{message}starts a recording\n")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"stormlog-heap-{running.pid}-2.bin", f"stormlog-heap-{running.pid}.bin"]
