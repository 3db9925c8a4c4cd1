"""Supervisor and program killed at once, as `memory.oom.group=1` does.

The next reader finishes the run by what was written before.
"""

from __future__ import annotations

import json
import os
import subprocess
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
    is_locked,
    kill_all,
    program,
    stormlog,
    until,
)

LIMIT = 160 << 20
#: A container: a PID namespace of its own, whose first process is the supervisor, and a mount namespace.
CONTAINER = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
POD = "5ce36b3b-5f34-4f0c-9f5e-2f0c0f6f6a11"


pytestmark = [
    pytest.mark.skipif(not can(CONTAINER), reason="needs the right to make namespaces"),
    pytest.mark.skipif(not can(NOBODY), reason="needs the right to become another user"),
]


def killed(runs: Path, before: list[str], options: tuple[str, ...] = ()) -> Path:
    """The directory of a run whose processes were all killed at once, 98 % of their limit in use."""
    words = [*before, *command(runs, *program("fills_its_cgroup.py", str(3 << 20)), options=options)]
    with cgroup(LIMIT) as group:
        with subprocess.Popen(in_cgroup(group, words), stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout and run.stdout.readline() == "full\n"
            (directory,) = runs.iterdir()
            seen = events(directory)
            # The supervisor has samples of that much.
            until(lambda: events(directory) > seen + 2)
            kill_all(group)
        until(lambda: not (group / "cgroup.procs").read_text())
    # A killed process keeps its files until the last of its threads has ended.
    until(lambda: not is_locked(directory / ".locks" / "supervisor"))
    return directory


def events(directory: Path) -> int:
    """Events of the program so far."""
    pid = record(directory)["pid"]
    rows = stormlog("sessions", str(directory))
    return max((row["event_count"] for row in rows if row["pid"] == pid), default=0)


def look(before: list[str], *arguments: str) -> Any:
    done = subprocess.run([*before, *STORMLOG, *arguments, "--json"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def record(directory: Path) -> Any:
    return json.loads((directory / "run.json").read_text())


def instance(tmp_path: Path, number: str) -> list[str]:
    """A container of a pod as a kubelet starts it: its termination log is mounted from a path that names it.

    A shell is its first process.
    """
    log = tmp_path / "pods" / POD / "containers" / "trainer" / number
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    seen = tmp_path / "termination-log"
    seen.touch()
    script = f'mount --bind "{log}" "{seen}" && export STORMLOG_TERMINATION_LOG="{seen}" && "$@"; exit $?'
    return [*CONTAINER, "sh", "-c", script, "sh"]


def test_run_of_a_container_is_finished_by_the_next_one_and_called_probable(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    # A directory that other users may enter, as a volume with an fsGroup.
    for above in (tmp_path, *list(tmp_path.parents)[:2]):
        above.chmod(0o755)
    directory = killed(runs, CONTAINER, ("--share",))
    os.chown(directory, -1, 65534)
    for below in directory.rglob("*"):
        os.chown(below, -1, 65534)
    before = (directory / "run.json").read_bytes()
    (row,) = look(NOBODY, "runs", "list", str(runs))
    assert row["state"] == "failed" and "probably killed by the kernel's OOM killer" in row["verdict"]
    assert (directory / "run.json").read_bytes() == before, "another user finishes it in memory"
    next_run = subprocess.run(
        [*CONTAINER, *command(runs, "-c", "pass")], capture_output=True, text=True, check=True
    )
    assert "completed an earlier run: fills_its_cgroup.py (pid" in next_run.stderr, next_run.stderr
    found = record(directory)
    assert (found["status"], found["cause"]) == ("interrupted", "cgroup_oom_kill")
    (process,) = (row for row in found["processes"] if row["pid"] == found["pid"])
    assert 0.5 < process["confidence"] < 0.75
    (bundle,) = (look([], "oom", "show", row["path"]) for row in look([], "oom", "list", str(runs)))
    assert bundle["limit_bytes"] == LIMIT and bundle["cause"] == "cgroup_oom_kill"
    assert any("counters are gone" in note for note in bundle["evidence"]["notes"])
    assert bundle["held"][0]["file"].endswith("fills_its_cgroup.py") and bundle["held"][0]["line"] == 18


def test_run_below_a_shell_is_finished_by_the_next_instance_of_its_container(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    directory = killed(runs, instance(tmp_path, "11111111"))
    container = record(directory)["container"]
    assert (container["pod_uid"], container["name"], container["instance"]) == (POD, "trainer", "11111111")
    before = (directory / "run.json").read_bytes()
    (row,) = look(CONTAINER, "runs", "list", str(runs))
    assert row["state"] == "unknown", (
        "a process of another namespace may live, for all that a sidecar can see"
    )
    assert (directory / "run.json").read_bytes() == before
    (row,) = look(instance(tmp_path, "22222222"), "runs", "list", str(runs))
    assert row["state"] == "failed" and "probably killed by the kernel's OOM killer" in row["verdict"]
    assert record(directory)["cause"] == "cgroup_oom_kill"


def test_run_below_a_shell_is_finished_from_the_node_whatever_has_its_numbers_now(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    directory = killed(runs, [*CONTAINER, "sh", "-c", '"$@"; exit $?', "sh"])
    # Numbers of a container are used again in the next one: here by a living process.
    with subprocess.Popen([*CONTAINER, "sh", "-c", "sleep 60; exit $?"]) as other:
        (row,) = look([], "runs", "list", str(runs))
        other.kill()
    assert row["state"] == "failed", row
    assert record(directory)["cause"] == "cgroup_oom_kill"


def test_run_of_a_container_is_finished_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    directory = killed(runs, CONTAINER)
    found = record(directory)
    found["supervisor"]["boot_id"] = "9f1d3f0e-0000-4000-8000-000000000000"
    found["host"] = "train-0"
    (directory / "run.json").write_text(json.dumps(found))
    (row,) = look([], "runs", "list", str(runs))
    assert row["state"] == "failed" and "probably killed" in row["verdict"]
