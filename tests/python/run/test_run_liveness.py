"""A look never falsifies a run: from another PID namespace, by another user, after its supervisor's death."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_command import (
    NOBODY,
    STORMLOG,
    can,
    cgroup,
    command,
    in_cgroup,
    is_gone,
    is_locked,
    program,
    stormlog,
    until,
)

#: Another PID namespace, with its own /proc.
ELSEWHERE = ["unshare", "--pid", "--fork", "--mount-proc"]


needs_namespaces = pytest.mark.skipif(not can(ELSEWHERE), reason="needs the right to make a PID namespace")
needs_users = pytest.mark.skipif(not can(NOBODY), reason="needs the right to become another user")


def look(before: list[str], *arguments: str) -> Any:
    done = subprocess.run([*before, *STORMLOG, *arguments, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file with its inode and time of change; rings and logs change while they are written."""
    paths = [
        path for path in directory.rglob("*") if path.is_file() and path.suffix not in (".ring", ".slog")
    ]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


class Program:
    """A run, its supervisor and its program, which ends when its input does."""

    def __init__(self, running: subprocess.Popen[str], directory: Path) -> None:
        assert running.stdout and running.stdin
        self.running, self.stdin, self.root = running, running.stdin, directory
        self.pid = int(running.stdout.readline().split()[1])
        until(lambda: list(directory.glob("*/rank*/session.json")))
        (self.directory,) = directory.iterdir()

    def kill_supervisor(self) -> None:
        self.running.kill()
        self.running.wait()

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        until(lambda: is_gone(self.pid))

    def lock(self, pid: int) -> Path:
        (path,) = self.directory.glob(f".locks/{pid}-*")
        return path


@contextlib.contextmanager
def started(directory: Path, how: str = "exit", before: list[str] | None = None) -> Iterator[Program]:
    words = command(directory, *program("waits_for_input.py", how))
    words = words if before is None else [*before, *words]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, text=True, **pipes) as running:
        found = Program(running, directory)
        try:
            yield found
        finally:
            running.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGKILL)


@needs_namespaces
def test_a_living_run_is_running_from_another_pid_namespace(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        before = contents(tmp_path)
        (row,) = look(ELSEWHERE, "sessions", str(tmp_path))
        assert row["status"] == "running"
        assert look(ELSEWHERE, "oom", "list", str(tmp_path)) == []
        # Its supervisor keeps a look at its memory now and then.
        added = contents(tmp_path).keys() - before.keys()
        assert {Path(path).name for path in added} <= {"memory_map.json"}
        assert json.loads((run.directory / "run.json").read_text())["status"] == "running"


@pytest.mark.parametrize(
    "before", [[], pytest.param(ELSEWHERE, marks=needs_namespaces)], ids=["here", "elsewhere"]
)
def test_a_program_that_outlives_its_supervisor_is_running_and_nothing_is_written(
    tmp_path: Path, before: list[str]
) -> None:
    with started(tmp_path) as run:
        run.kill_supervisor()
        found = contents(tmp_path)
        (row,) = look(before, "sessions", str(tmp_path))
        assert row["status"] == "running"
        assert look(before, "oom", "list", str(tmp_path)) == []
        assert contents(tmp_path) == found


def test_an_exit_after_the_supervisors_death_is_unknown_and_no_kill(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.kill_supervisor()
        run.end()
    assert stormlog("oom", "list", str(tmp_path)) == []
    (row,) = stormlog("sessions", str(tmp_path))
    assert row["status"] == "incomplete"
    record = json.loads((run.directory / "run.json").read_text())
    assert (record["status"], record["cause"]) == ("interrupted", "unknown")
    assert "its exit status was not recorded" in record["verdict"], record["verdict"]


def test_an_oom_kill_after_the_supervisors_death_is_no_perfect_score(tmp_path: Path) -> None:
    with cgroup(120 << 20) as group, started(tmp_path, "grow", in_cgroup(group, [])) as run:
        run.kill_supervisor()
        (row,) = stormlog("sessions", str(tmp_path))
        assert row["status"] == "running", "a look before the kill decides nothing"
        run.end()
    done = subprocess.run([*STORMLOG, "analyze", str(tmp_path)], capture_output=True, text=True)
    assert "OOM killer" in done.stdout
    assert "(A)" not in done.stdout
    (row,) = stormlog("oom", "list", str(tmp_path))
    assert row["cause"] == "cgroup_oom_kill"


def test_every_recorded_python_process_holds_a_lock_of_its_own(tmp_path: Path) -> None:
    with started(tmp_path, "fork") as run:
        parent = json.loads((run.directory / "run.json").read_text())["pid"]
        locks = [run.lock(parent), run.lock(run.pid), run.directory / ".locks" / "supervisor"]
        assert [is_locked(path) for path in locks] == [True, True, True]
        os.kill(parent, signal.SIGKILL)
        until(lambda: not locks[0].exists() or not is_locked(locks[0]))
        assert is_locked(locks[1]), "the child's is not its parent's"
        assert run.running.wait() != 0
        assert not locks[0].exists(), "swept at the end"
        assert is_locked(locks[1])


@needs_namespaces
def test_a_dead_supervisor_is_found_dead_from_another_pid_namespace_by_its_lock(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.kill_supervisor()
        run.end()
        # The program's end is not known there: its own lock may have gone with an exec.
        (row,) = look(ELSEWHERE, "sessions", str(tmp_path))
        assert row["status"] == "running"
        assert json.loads((run.directory / "run.json").read_text())["status"] == "running"
    (row,) = stormlog("sessions", str(tmp_path))
    assert row["status"] == "incomplete"


@needs_users
def test_another_user_sees_an_abandoned_run_finished_and_writes_nothing(tmp_path: Path) -> None:
    with cgroup(120 << 20) as group, started(tmp_path, "grow", in_cgroup(group, [])) as run:
        run.kill_supervisor()
        run.end()
    subprocess.run(["chmod", "-R", "a+rwX", str(tmp_path)], check=True)
    for path in (tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o111 if path.stat().st_uid == os.getuid() else path.stat().st_mode)
    found = contents(tmp_path)
    (row,) = look(NOBODY, "sessions", str(tmp_path))
    assert row["status"] in ("interrupted", "incomplete")
    assert look(NOBODY, "oom", "list", str(tmp_path)) == []
    assert contents(tmp_path) == found


@needs_users
def test_root_finishes_another_users_run_without_following_its_links(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.kill_supervisor()
        run.end()
    victim = tmp_path.with_name(tmp_path.name + "-victim") / "file"
    victim.parent.mkdir()
    victim.write_text("precious")
    (session,) = run.directory.glob("rank*")
    state = (session / "session.json").read_bytes()
    linked = run.directory / "rank9-pid9"
    linked.symlink_to(victim.parent)
    for path in [run.directory, *run.directory.rglob("*")]:
        os.chown(path, 65534, 65534, follow_symlinks=False)
    (row,) = stormlog("sessions", str(tmp_path))
    assert row["status"] == "incomplete"
    written = session / "session.json"
    assert written.read_bytes() != state
    assert (written.stat().st_uid, (run.directory / "run.json").stat().st_uid) == (65534, 65534)
    assert victim.read_text() == "precious"
    assert list(victim.parent.iterdir()) == [victim]
