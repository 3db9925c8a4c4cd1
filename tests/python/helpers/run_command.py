"""`stormlog run` as the tests use it: command lines, programs, cgroups, and waiting for conditions."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from places import PROGRAMS

CGROUPS = Path("/sys/fs/cgroup/memory")
INTERVAL_NS = 50_000_000
STORMLOG = [sys.executable, "-m", "stormlog"]
#: A user who owns nothing.
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def command(directory: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    run = [*STORMLOG, "run", "--dir", str(directory), "--interval", "0.05", *options]
    return [*run, *words]


def program(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / name), *arguments]


def stormlog(*arguments: str) -> Any:
    done = subprocess.run([*STORMLOG, *arguments, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def newest(directory: Path) -> Any:
    (run_directory,) = directory.iterdir()
    pid = json.loads((run_directory / "run.json").read_text())["pid"]
    bundles = [row["path"] for row in stormlog("oom", "list", str(directory)) if f"pid{pid}" in row["path"]]
    return stormlog("oom", "show", bundles[0]) if bundles else None


def start(directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(directory, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def until(condition: Callable[[], Any]) -> Any:
    """Waits for the condition, however slow the machine is."""
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


def is_locked(path: Path) -> bool:
    """Whether another process holds the file's lock."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def can(words: list[str]) -> bool:
    """Whether these words may be put before a command on this machine."""
    try:
        return subprocess.run([*words, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    return True


def pid_of(directory: Path) -> int:
    """The program of the run below; it may run before its number is written down."""
    (record,) = until(lambda: list(directory.glob("*/run.json")))
    return int(until(lambda: json.loads(record.read_text()).get("pid")))


@contextlib.contextmanager
def cgroup(limit: int) -> Iterator[Path]:
    """A real memory cgroup with a hard limit."""
    if not (CGROUPS / "memory.limit_in_bytes").exists() or os.getuid() != 0:
        pytest.skip("needs root and a version 1 memory cgroup")
    path = CGROUPS / f"stormlog-test-{os.getpid()}-{time.time_ns()}"
    path.mkdir()
    try:
        (path / "memory.limit_in_bytes").write_text(str(limit))
        with contextlib.suppress(OSError):  # no swap accounting in this kernel
            (path / "memory.memsw.limit_in_bytes").write_text(str(limit))
        yield path
    finally:
        for attempt in range(100):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.05)
            if attempt == 20:
                # A test that failed half way: what it started would use up the machine beside the next one.
                kill_all(path)


def kill_all(group: Path) -> None:
    """Ends every process of a cgroup at once, as `memory.oom.group=1` does: none sees the end of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)


def in_cgroup(path: Path, words: list[str]) -> list[str]:
    return ["sh", "-c", f'echo $$ > "{path}/cgroup.procs" && exec "$@"', "sh", *words]
