"""Real gunicorn, Celery, Dask and Ray under `stormlog run`: which worker died, and what held its memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import components
from run_command import cgroup, stormlog, until

EXAMPLES = Path(__file__).parents[2] / "examples/workers"
# Titles are only set where `setproctitle` is installed; Ray brings its own.
PACKAGES = ("gunicorn==27.0.0", "celery==5.7.0", "distributed==2026.8.0")
LIMIT = 512 << 20


class Recorded:
    """A program of the examples under `stormlog run`, in a cgroup with a limit."""

    def __init__(self, place: Path, group: Path, python: Path, *words: str | Path) -> None:
        # Otherwise its pages are charged to the group, and at the limit the kernel drops and reads the same
        # pages of libraries for minutes (100 % system time) before it gives up and kills.
        components.into_page_cache(python)
        self.runs = place / "runs"
        self.log = place / "output"
        run = [str(Path(sys.executable).with_name("stormlog")), "run", "--dir", str(self.runs), "--"]
        env = {
            **os.environ,
            "QUEUE": str(place),
            "PYTHONPATH": str(EXAMPLES),
            "RAY_memory_monitor_refresh_ms": "0",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*run, str(python), *(str(word) for word in words)],
                cwd=place,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Joined before the program exists, so that all of it is in the group.
                preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None,
            )

    def end(self) -> str:
        """What was printed, the summary included."""
        assert self.process.wait(timeout=100) is not None
        return self.log.read_text()

    def rows(self) -> list[dict[str, Any]]:
        (record,) = self.runs.glob("*/run.json")
        rows: list[dict[str, Any]] = json.loads(record.read_text())["processes"]
        return rows

    def dead_worker(self) -> dict[str, Any]:
        """The first worker that the kernel killed."""
        return next(row for row in self.rows() if row["cause"] == "cgroup_oom_kill")


def test_gunicorn_worker_that_grew_is_named_with_its_line(tmp_path: Path, port: Callable[[], int]) -> None:
    python = components.python_with(*PACKAGES)
    address = f"127.0.0.1:{port()}"
    with cgroup(LIMIT) as group:
        words = ["-m", "gunicorn", "-w", "2", "-b", address, "--no-control-socket", "web:application"]
        recorded = Recorded(tmp_path, group, python, *words)

        def get(path: str) -> str | None:
            try:
                with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
                    return str(answer.read().decode())
            except OSError:
                return None

        until(lambda: get("/"))
        # Each request grows the worker that takes it, until the kernel ends the largest.
        until(lambda: get("/leak") is None or "SIGKILL" in recorded.log.read_text())
        until(lambda: "SIGKILL" in recorded.log.read_text())
        recorded.process.send_signal(signal.SIGINT)
        text = recorded.end()
    worker = recorded.dead_worker()
    assert worker["worker"]["framework"] == "gunicorn" and re.fullmatch(
        r"worker [12]", worker["worker"]["name"]
    )
    assert re.search(
        r"stormlog: gunicorn worker [12] \(pid \d+\) was killed by the kernel's OOM killer", text
    ), text
    assert re.search(r"MiB +web\.py:15 application", text), text
    # The other views read the same name.
    processes = {row["process"]["program"] for row in stormlog("sessions", str(recorded.runs))}
    assert worker["program"] in processes


def test_celery_worker_that_was_killed_is_named_with_its_line(tmp_path: Path) -> None:
    python = components.python_with(*PACKAGES)
    with cgroup(LIMIT) as group:
        words = ["-m", "celery", "-A", "tasks", "worker", "-c", "1", "-l", "WARNING", "-P", "prefork"]
        recorded = Recorded(tmp_path, group, python, *words)
        send = "import tasks; tasks.hoard.delay()"
        env = {**os.environ, "QUEUE": str(tmp_path), "PYTHONPATH": str(EXAMPLES)}
        subprocess.run([python, "-c", send], cwd=tmp_path, env=env, check=True)
        until(lambda: "signal 9 (SIGKILL)" in recorded.log.read_text())
        # At once: a warm shutdown waits for the task of a worker that is gone.
        recorded.process.send_signal(signal.SIGQUIT)
        text = recorded.end()
    worker = recorded.dead_worker()
    assert worker["worker"] == {"framework": "celery", "name": "ForkPoolWorker-1"}
    assert re.search(
        r"stormlog: celery ForkPoolWorker-1 \(pid \d+\) was killed by the kernel's OOM killer", text
    ), text
    assert re.search(r"held by .*MiB +tasks\.py:19 hoard", text), text


def test_dask_worker_that_was_killed_is_named_with_its_line(tmp_path: Path) -> None:
    python = components.python_with(*PACKAGES)
    with cgroup(LIMIT) as group:
        text = Recorded(tmp_path, group, python, EXAMPLES / "dask_cluster.py").end()
    killed = r"\(pid \d+\) was killed by the kernel's OOM killer"
    if re.search(rf"stormlog: dask_cluster\.py {killed}", text):
        # On a busy machine the kernel may take a second victim before the memory of the first is free.
        assert re.search(rf"child +dask worker \d+ {killed}", text), text
        assert re.search(r"held by +[\d.]+ MiB +dask worker \d+", text), text
        return
    assert re.search(rf"stormlog: dask worker \d+ {killed}", text), text
    assert re.search(r"held by .*MiB +dask_cluster\.py:15 hoard", text), text


def test_ray_worker_that_was_killed_is_named_by_its_task_with_its_line(tmp_path: Path) -> None:
    python = components.python_with("ray==2.60.0")
    with cgroup(1200 << 20) as group:
        recorded = Recorded(tmp_path, group, python, EXAMPLES / "ray_tasks.py")
        text = recorded.end()
    assert recorded.dead_worker()["worker"] == {"framework": "ray", "name": "ray::hoard"}
    assert re.search(r"stormlog: ray::hoard \(pid \d+\) was killed by the kernel's OOM killer", text), text
    assert re.search(r"held by .*[MG]iB +ray_tasks\.py:15 hoard", text), text
