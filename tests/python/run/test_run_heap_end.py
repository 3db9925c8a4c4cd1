"""The end of `run --heap`: short-lived children, what completes captures, and the wait for it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from heap_captures import live_files, stats
from pseudo_terminal import Terminal
from run_command import STORMLOG

#: What the supervisor may hold, as docs/heap-recording.md states it.
OWN_DESCRIPTORS, FOR_A_PROCESS = 32, 3
#: Allocations enough for a capture that takes a moment to complete.
BUSY = "x = []\nfor i in range({n}):\n    x.append(bytes(600))\n    if len(x) > 1000: x.clear()\n"


def command(directory: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    return [*STORMLOG, "run", "--heap", "--dir", str(directory), *options, "--", *words]


def only_run(directory: Path) -> Path:
    (run,) = directory.iterdir()
    return run


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in map(int, children) for found in (child, *descendants(child))]


def finishers(run: Path) -> Iterator[int]:
    """The processes that complete the captures of a run."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"finish-captures" in words and os.fsencode(run) in words:
            yield int(entry.name)


def until_finished(run: Path) -> None:
    while live_files(run):
        time.sleep(0.01)


@pytest.fixture
def waiting_program(tmp_path: Path) -> Iterator[Any]:
    """A run of a shell that starts `count` short-lived processes and then waits for a signal to end."""
    running: list[subprocess.Popen[str]] = []

    def start(count: int, limit: int | None = None) -> tuple[subprocess.Popen[str], Path]:
        def prepare() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        script = f"i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i+1)); done; echo done; read line"
        words = command(tmp_path / "runs", "sh", "-c", script, options=("--json", "--wait"))
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=prepare,
        )
        running.append(process)
        assert process.stdout is not None and process.stdout.readline() == "done\n"
        return process, only_run(tmp_path / "runs")

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_children_that_have_ended_hold_no_descriptor(waiting_program: Any) -> None:
    process, run = waiting_program(120)
    # Those no watcher met are waited for a moment.
    while len(live_files(run)) > 1 + len(descendants(process.pid)):
        time.sleep(0.01)
    living = len(descendants(process.pid))
    held = list(Path(f"/proc/{process.pid}/fd").iterdir())
    assert len(held) <= OWN_DESCRIPTORS + FOR_A_PROCESS * living
    _, errors = process.communicate("\n")
    assert json.loads(errors)["exit_code"] == 0


def test_with_few_descriptors_every_child_is_recorded_and_finished(waiting_program: Any) -> None:
    process, run = waiting_program(300, limit=256)
    _, errors = process.communicate("\n")
    outcome = json.loads(errors)
    assert outcome["exit_code"] == 0
    assert outcome["processes"][0]["heap"]["peak_bytes"] > 0, "the program's own capture"
    assert not live_files(run)
    unmet = list((run / "heap").glob("*.bin")) if (run / "heap").exists() else []
    met = list(run.glob("*/heap.bin"))
    assert len(unmet) <= 256
    # More were started than are kept of those that nobody met.
    assert len(unmet) + len(met) >= 256
    assert all(stats(capture)["peak_bytes"] >= 0 for capture in [*unmet[:3], *met[:3]])


def test_a_living_process_costs_three_descriptors(tmp_path: Path) -> None:
    count = 40
    script = f"i=0; while [ $i -lt {count} ]; do sleep 600 & i=$((i+1)); done; echo done; wait"
    words = command(tmp_path, "sh", "-c", script, options=("-q",))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "done\n"
        run = only_run(tmp_path)
        # Every process has its session, and a capture of its own since it became `sleep`.
        while len(list(run.glob("rank*"))) < count + 1 or len(live_files(run)) < 2 * count + 1:
            time.sleep(0.01)
        while True:
            held = [
                str(path.readlink())
                for path in Path(f"/proc/{running.pid}/fd").iterdir()
                if path.is_symlink()
            ]
            if sum(link.endswith(".live") for link in held) <= count + 1:
                break
            time.sleep(0.01)
        assert len(held) <= OWN_DESCRIPTORS + FOR_A_PROCESS * (count + 1)
        for pid in descendants(running.pid):
            os.kill(pid, signal.SIGKILL)


def test_finisher_holds_no_descriptor_of_its_caller(tmp_path: Path) -> None:
    inherited = os.open(tmp_path, os.O_RDONLY)
    words = command(tmp_path / "runs", sys.executable, "-c", BUSY.format(n=400_000))
    done = subprocess.run(words, capture_output=True, text=True, pass_fds=[inherited])
    os.close(inherited)
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path / "runs")
    for pid in finishers(run):
        try:
            held = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
            streams = [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)]
            directory, session = str(Path(f"/proc/{pid}/cwd").readlink()), os.getsid(pid)
        except OSError:
            continue  # It has ended by now.
        assert streams == ["/dev/null"] * 3
        assert directory == "/" and session == pid
        assert not any(link.startswith("pipe:") or link == str(tmp_path) for link in held)
    until_finished(run)
    (capture,) = run.glob("rank*/heap.bin")
    assert stats(capture)["complete"]


def test_a_capture_says_the_same_before_and_after_it_is_completed(tmp_path: Path) -> None:
    words = command(tmp_path, sys.executable, "-c", BUSY.format(n=200_000), options=("--json",))
    done = subprocess.run(words, capture_output=True, text=True)
    run = only_run(tmp_path)
    for pid in finishers(run):
        os.kill(pid, signal.SIGKILL)
    heap = json.loads(done.stderr)["processes"][0]["heap"]
    (capture,) = run.glob("rank*/heap.bin")
    before = stats(capture)
    assert heap["peak_bytes"] == before["peak_bytes"]
    assert before["complete"], "the program's end is known without it"
    size = sum(path.stat().st_size for path in capture.parent.glob("heap.bin*"))
    subprocess.run([*STORMLOG, "finish-captures", str(run)], check=True)
    assert not live_files(run)
    assert stats(capture) == before
    assert capture.stat().st_size < size


def test_the_file_that_was_asked_for_is_complete_when_the_command_returns(tmp_path: Path) -> None:
    output = tmp_path / "out.bin"
    words = command(
        tmp_path / "runs", sys.executable, "-c", BUSY.format(n=100_000), options=("-o", str(output))
    )
    assert subprocess.run(words, capture_output=True).returncode == 0
    assert not live_files(tmp_path)
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    shutil.copy(output, alone / "copy.bin")
    assert stats(alone / "copy.bin") == stats(output)


@pytest.mark.parametrize("options", [(), ("--aggregate",), ("--max-size", "200kB")])
def test_wait_returns_when_captures_are_complete(tmp_path: Path, options: tuple[str, ...]) -> None:
    words = command(tmp_path, sys.executable, "-c", BUSY.format(n=50_000), options=("--wait", *options))
    assert subprocess.run(words, capture_output=True).returncode == 0
    run = only_run(tmp_path)
    assert not live_files(run) and not list(finishers(run))
    (capture,) = run.glob("rank*/heap.bin")
    assert stats(capture)["complete"]


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("unshare") is None, reason="needs a PID namespace")
def test_as_process_1_it_completes_captures_itself(tmp_path: Path) -> None:
    words = command(tmp_path, sys.executable, "-c", BUSY.format(n=100_000), options=("-q",))
    namespace = ["unshare", "--fork", "--pid", "--mount-proc"]
    assert subprocess.run([*namespace, *words], capture_output=True).returncode == 0
    run = only_run(tmp_path)
    assert not live_files(run)
    (capture,) = run.glob("rank*/heap.bin")
    assert stats(capture)["complete"]


def test_ctrl_c_while_captures_are_completed_leaves_one_that_can_be_read(tmp_path: Path) -> None:
    output = tmp_path / "out.bin"
    words = command(
        tmp_path / "runs", sys.executable, "-c", BUSY.format(n=1_500_000), options=("-o", str(output))
    )
    terminal = Terminal(words, columns=200)
    try:
        # On a quick machine there may be nothing to wait for.
        while terminal.process.poll() is None and b"Ctrl-C skips this" not in terminal.seen:
            terminal.read(0.05)
        if terminal.process.poll() is None:
            terminal.press("\x03")
        while terminal.process.poll() is None:
            terminal.read(0.05)
        assert terminal.process.returncode == 0, terminal.text()
    finally:
        terminal.close()
    (capture,) = (tmp_path / "runs").glob("*/rank*/heap.bin")
    figures = stats(capture)
    assert figures["complete"] and figures["total_allocations"] >= 1_500_000
