"""Snapshots of running processes: by the process, by its supervisor, from outside, by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from run_command import NOBODY, STORMLOG, command, until

HOLDS = """
import sys, time
def fill():
    return list(map(bytearray, [1 << 20] * 64))
kept = fill()
print("ready", flush=True)
time.sleep(600)
"""
# Ends steps up to the first number, waits until a request was taken, and ends more of them.
STEPS = """
import json, os, sys, time
from pathlib import Path
import stormlog
first, last, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
stormlog.step(first)
print("ready", flush=True)
requests = Path(os.environ["STORMLOG_RUN_DIR"]) / "requests"
while not list(requests.glob(f"{os.getpid()}-*.answer.json")):
    time.sleep(0.01)
for number in range(first + 1, last + 1):
    stormlog.step(number)
    time.sleep(pause)
time.sleep(600)
"""


@contextmanager
def running(words: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        yield process
    finally:
        process.kill()
        process.communicate()


def recorded(directory: Path, code: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    script = directory.parent / "program.py"
    script.write_text(code)
    options = ("--quiet", "--die-with-supervisor", *options)
    return command(directory, sys.executable, str(script), *arguments, options=options)


def pid_of(run: Path) -> int:
    return int(json.loads((run / "run.json").read_text())["pid"])


def only(directory: Path) -> Path:
    (found,) = directory.iterdir()
    return found


def snapshot(pid: int, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    words = ("snapshot", "--pid", str(pid), *words)
    return subprocess.run([*STORMLOG, *words], capture_output=True, text=True, check=False, **options)


def listener(run: Path, pid: int) -> Any:
    path = run / "requests" / f"{pid}.listener.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_program_that_takes_no_requests_is_seen_from_outside_with_its_lines(tmp_path: Path) -> None:
    with running(recorded(tmp_path / "runs", HOLDS)):
        run = only(tmp_path / "runs")
        done = snapshot(pid_of(run), "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert not found["is_by_process"] and found["program"] == "program.py"
        assert found["memories"][0]["bytes"] > 64 << 20
        largest = found["holders"][0]
        assert (Path(largest["file"]).name, largest["line"], largest["function"]) == ("program.py", 4, "fill")
        assert Path(found["path"]).parent == run / "snapshots"
        assert oct(Path(found["path"]).stat().st_mode)[-3:] == "700"
        text = snapshot(pid_of(run)).stdout
        assert "Held by line" in text and "program.py:4 fill" in text
        shown = subprocess.run(
            [*STORMLOG, "snapshot", found["path"]], capture_output=True, text=True, check=True
        )
        assert "program.py:4 fill" in shown.stdout


def test_supervisor_answers_for_a_program_that_takes_no_requests(tmp_path: Path) -> None:
    with running(recorded(tmp_path / "runs", HOLDS)):
        words = ["trigger", str(tmp_path / "runs"), "--snapshot", "--timeout", "60", "--json"]
        done = subprocess.run([*STORMLOG, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (row,) = json.loads(done.stdout)["processes"]
        assert row["state"] == "recorded"
        written = json.loads((Path(row["path"]) / "snapshot.json").read_text())
        assert written["holders"][0]["function"] == "fill" and written["asked_by"] == "stormlog trigger"
        late = [
            *STORMLOG,
            "trigger",
            str(tmp_path / "runs"),
            "--snapshot",
            "--at-step",
            "5",
            "--timeout",
            "60",
        ]
        refused = subprocess.run(late, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "counts no steps" in refused.stdout
        assert "0 of 1 processes recorded" in refused.stdout


def test_processes_record_at_the_same_step_however_fast_they_are(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    one, two, late = ([*map(str, values)] for values in [(3, 60, 0.001), (10, 60, 0.01), (70, 90, 0.001)])
    with (
        running(recorded(runs, STEPS, *one)),
        running(recorded(runs, STEPS, *two)),
        running(recorded(runs, STEPS, *late)),
    ):
        words = ["trigger", str(runs), "--snapshot", "--at-step", "50", "--timeout", "60"]
        done = subprocess.run([*STORMLOG, *words, "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads(done.stdout)["processes"]
        assert [row["state"] for row in rows] == ["recorded"] * 3
        steps = []
        for row in rows:
            written = json.loads((Path(row["path"]) / "snapshot.json").read_text())
            assert written["is_by_process"] and written["at_step"] == 50
            assert written["step"] == row["step"]
            steps.append(written["step"])
        assert sorted(steps) == [50, 50, 71], "the last one was past it: its next step"


def test_heap_of_one_step_is_recorded_by_line(tmp_path: Path) -> None:
    code = STEPS.replace(
        "    stormlog.step(number)", "    kept = [bytes(3 << 20)]\n    stormlog.step(number)"
    )
    options = ("--no-heap", "--no-gpu")
    with running(recorded(tmp_path / "runs", code, "1", "20", "0.01", options=options)):
        words = ["trigger", str(tmp_path / "runs"), "--heap", "--at-step", "5", "--timeout", "60", "--json"]
        done = subprocess.run([*STORMLOG, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (row,) = json.loads(done.stdout)["processes"]
        stats = subprocess.run(
            [*STORMLOG, "stats", str(Path(row["path"]) / "heap.bin"), "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(stats.stdout)["peak_bytes"] >= 3 << 20


ENDS = STEPS.replace("time.sleep(600)", "sys.exit(int(sys.argv[4]))")


@pytest.mark.parametrize("kind", ["--snapshot", "--heap"])
def test_rank_that_ends_before_the_step_is_reported_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    options = ("--no-heap", "--no-gpu")
    words = recorded(tmp_path / "runs", ENDS, "1", "20", "0", "0", options=options)
    with running(words):
        trigger = ["trigger", str(tmp_path / "runs"), kind, "--at-step", "50", "--timeout", "600", "--json"]
        done = subprocess.run([*STORMLOG, *trigger], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)["processes"]
    assert (row["state"], row["step"]) == ("refused", 20)
    assert row["reason"] == "the process ended before step 50: the last step is 20"


def test_rank_that_is_killed_before_the_step_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    code = STEPS.replace("time.sleep(600)", "os.kill(os.getpid(), 9)")
    with running(recorded(tmp_path / "runs", code, "1", "20", "0")):
        trigger = ["trigger", str(tmp_path / "runs"), "--snapshot", "--at-step", "50", "--json"]
        done = subprocess.run([*STORMLOG, *trigger], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)["processes"]
    assert (row["state"], row["reason"]) == ("ended", "the process ended before it answered")


def test_heap_that_no_further_step_ends_is_there_when_the_process_ends(tmp_path: Path) -> None:
    options = ("--no-heap", "--no-gpu")
    code = ENDS.replace("    time.sleep(pause)", "kept = [bytes(3 << 20)]")
    with running(recorded(tmp_path / "runs", code, "1", "20", "0", "0", options=options)):
        trigger = ["trigger", str(tmp_path / "runs"), "--heap", "--at-step", "20", "--json"]
        done = subprocess.run([*STORMLOG, *trigger], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["processes"]
    stats = [*STORMLOG, "stats", str(Path(row["path"]) / "heap.bin"), "--json"]
    shown = subprocess.run(stats, capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["peak_bytes"] >= 3 << 20


def test_heap_is_recorded_for_some_seconds_where_it_was_not(tmp_path: Path) -> None:
    code = """
import time, stormlog
stormlog.step(1)
print("ready", flush=True)
kept = []
while len(kept) < 6000:
    kept.append(bytes(64 << 10))
    time.sleep(0.01)
"""
    with running(recorded(tmp_path / "runs", code, options=("--no-heap", "--no-gpu"))):
        run = only(tmp_path / "runs")
        until(lambda: listener(run, pid_of(run)))
        done = snapshot(pid_of(run), "--heap", "2", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        largest = found["holders"][0]
        assert (Path(largest["file"]).name, largest["line"]) == ("program.py", 7)
        # About 6 MiB a second are allocated; how much of it under load is not known.
        assert found["is_by_process"] and largest["bytes"] > 1 << 20
        assert (Path(found["path"]) / "heap.bin").is_file()


def test_process_without_stormlog_is_seen_from_outside(tmp_path: Path) -> None:
    with running([sys.executable, "-c", HOLDS]) as process:
        done = snapshot(process.pid, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "seen from outside" in done.stdout and "--heap 10" in done.stdout
        assert (tmp_path / f"stormlog-snapshot-{process.pid}" / "snapshot.json").is_file()
        again = snapshot(process.pid, "-o", "look", "--json", cwd=tmp_path)
        assert json.loads(again.stdout)["memories"][0]["bytes"] > 64 << 20
        assert (tmp_path / "look" / "snapshot.json").is_file()
        third = snapshot(process.pid, "-o", "look", cwd=tmp_path)
        assert third.returncode == 2 and "look is not empty; name a new directory" in third.stderr


def test_unanswerable_request_gives_one_sentence(tmp_path: Path) -> None:
    missing = snapshot(4_194_305)
    assert missing.returncode == 5 and "there is no process 4194305" in missing.stderr
    nothing = subprocess.run(
        [*STORMLOG, "trigger", str(tmp_path), "--snapshot"], capture_output=True, text=True, check=False
    )
    assert nothing.returncode == 5 and "no running process is recorded here" in nothing.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_request_of_another_user_does_not_count(tmp_path: Path) -> None:
    with running(recorded(tmp_path / "runs", STEPS, "1", "2", "0")):
        run = only(tmp_path / "runs")
        pid = pid_of(run)
        until(lambda: listener(run, pid))
        # As if the directory were open to others.
        (tmp_path / "runs").chmod(0o755)
        run.chmod(0o777)
        (run / "requests").chmod(0o777)
        request = {"id": "ab", "pid": pid, "kind": "snapshot", "asked_by": "x", "asked_at_ns": 1}
        text = json.dumps(request)
        written = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
        path = run / "requests" / f"{pid}-ab.json"
        for part in (tmp_path, *tmp_path.parents[:3]):
            part.chmod(part.stat().st_mode | 0o711)
        subprocess.run([*NOBODY, sys.executable, "-c", written, str(path), text], check=True)
        answer = run / "requests" / f"{pid}-ab.answer.json"
        until(answer.exists)
        found = json.loads(answer.read_text())
        assert found["state"] == "refused" and "not from the user" in found["reason"]
        assert not (run / "snapshots").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_root_is_not_led_into_a_directory_by_the_environment_of_another_user(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    words = [*NOBODY, "env", f"STORMLOG_RUN_DIR={victim}", "sh", "-c", "echo ready; exec sleep 600"]
    with running(words) as process:
        done = snapshot(process.pid, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert list(victim.iterdir()) == []
    assert (tmp_path / f"stormlog-snapshot-{process.pid}" / "snapshot.json").is_file()


def test_forked_process_names_the_one_that_it_inherited_from(tmp_path: Path) -> None:
    code = """
import os, time
kept = [bytearray(1 << 20) for _ in range(8)]
child = os.fork()
if child:
    print("ready", child, flush=True)
time.sleep(600)
"""
    script = tmp_path / "program.py"
    script.write_text(code)
    options = ("--quiet", "--die-with-supervisor")
    words = command(tmp_path / "runs", sys.executable, str(script), options=options)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline().split()[1])
        try:
            parent = pid_of(only(tmp_path / "runs"))
            assert f"forked from process {parent}" in snapshot(child).stdout
            assert "forked from" not in snapshot(parent).stdout
        finally:
            os.kill(child, signal.SIGKILL)
            process.kill()


def test_signal_asks_a_program_whose_main_thread_is_in_c_code(tmp_path: Path) -> None:
    words = recorded(tmp_path / "runs", HOLDS, options=("--snapshot-signal", "SIGUSR2"))
    with running(words):
        run = only(tmp_path / "runs")
        pid = pid_of(run)
        until(lambda: (listener(run, pid) or {}).get("signal_state") == "used")
        os.kill(pid, signal.SIGUSR2)
        (written,) = until(lambda: list((run / "snapshots").glob("*/snapshot.json")))
        found = json.loads(written.read_text())
        assert found["asked_by"] == "signal" and found["holders"][0]["function"] == "fill"
        assert json.loads(snapshot(pid, "--json").stdout)["is_by_process"]


def test_handler_of_the_program_keeps_its_signal(tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
print("ready", flush=True)
while not got:
    time.sleep(0.01)
os.replace(sys.argv[0], sys.argv[0] + ".handled")
time.sleep(600)
"""
    words = recorded(tmp_path / "runs", code, options=("--snapshot-signal", "SIGUSR2"))
    with running(words):
        run = only(tmp_path / "runs")
        pid = pid_of(run)
        until(lambda: (listener(run, pid) or {}).get("signal_state") == "replaced")
        os.kill(pid, signal.SIGUSR2)
        until((tmp_path / "program.py.handled").exists)
        assert "installed its own handler" in snapshot(pid).stdout


def in_process(tmp_path: Path, code: str, *options: str) -> Any:
    words = [sys.executable, *options, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_snapshot_inside_the_program_names_its_lines(tmp_path: Path) -> None:
    code = """
import json, stormlog
from stormlog import heap
heap.start("own.bin")
kept = [bytearray(1 << 20) for _ in range(32)]
found = stormlog.snapshot("here")
holder = found.holders[0]
row = [holder.memory, holder.bytes, holder.line]
print(json.dumps([str(found.path), found.total, *row, str(found), repr(found)]))
"""
    path, total, memory, size, line, text, short = in_process(tmp_path, code)
    assert path == "here" and (tmp_path / "here" / "snapshot.json").is_file()
    assert total > 32 << 20 and memory == "host" and size >= 32 << 20 and line == 5
    assert "Held by line" in text and short.startswith("Snapshot(path=")


def test_signals_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    code = """
import json, os, signal, stormlog, threading
signal.signal(signal.SIGUSR1, lambda *_: None)
problems = []
for one in (signal.SIGUSR1, 2, "SIGTERM", "SIGWHAT", 4711):
    try:
        stormlog.snapshot_on(one)
    except ValueError as error:
        problems.append(str(error))
is_clean = threading.active_count() == 1 and not [name for name in os.listdir() if "snapshot" in name]
stormlog.snapshot_on("SIGUSR2")
print(json.dumps([problems, is_clean, signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL]))
"""
    problems, is_clean, is_kept = in_process(tmp_path, code)
    why = "cannot be used: the system or Python uses it; choose SIGUSR1, SIGUSR2 or a real-time signal"
    assert problems == [
        "signal 10 is handled or ignored by this program; choose another one",
        f"SIGINT {why}",
        f"SIGTERM {why}",
        "'SIGWHAT' is not a signal; for example SIGUSR2",
        "4711 is not a signal; for example SIGUSR2",
    ]
    assert is_clean and is_kept


def test_forking_program_sees_no_second_thread(tmp_path: Path) -> None:
    code = """
import json, os, stormlog, threading
os.environ["STORMLOG_RUN_DIR"] = os.getcwd()
stormlog.step()
names = [thread.name for thread in threading.enumerate()]
child = os.fork()
if child == 0:
    os._exit(len(threading.enumerate()) - 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
again = [thread.name for thread in threading.enumerate()]
print(json.dumps([names, status, again]))
"""
    names, status, again = in_process(tmp_path, code, "-W", "error")
    assert "stormlog-requests" in names and "stormlog-requests" in again and status == 0


def test_fork_during_a_snapshot_leaves_one_thread_and_a_child_that_can_take_its_own(tmp_path: Path) -> None:
    code = """
import json, os, stormlog, threading, time
from pathlib import Path
from stormlog import _native
from stormlog._requests import listener, take
run = Path.cwd()
os.environ["STORMLOG_RUN_DIR"] = str(run)
begun, goes_on = threading.Event(), threading.Event()
finish = _native.requests.finish_snapshot
def slow(*words):
    begun.set()
    goes_on.wait(60)
    return finish(*words)
_native.requests.finish_snapshot = slow
stormlog.step()
stormlog.snapshot_on("SIGUSR2")
os.kill(os.getpid(), 12)
assert begun.wait(60)
child = os.fork()
if child == 0:
    goes_on.set()
    stormlog.snapshot("of-the-child")
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
goes_on.set()
def threads():
    return [one.name for one in threading.enumerate() if one.name == "stormlog-requests"]
end = time.monotonic() + 60
while len(threads()) > 1 and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(1)
print(json.dumps([status, threads(), len(list((run / "snapshots").iterdir()))]))
"""
    status, threads, snapshots = in_process(tmp_path, code)
    assert (status, threads) == (0, ["stormlog-requests"])
    assert snapshots == 1, "the end of a thread is not taken for a signal"


def test_run_with_requests_and_snapshots_is_read_as_before(tmp_path: Path) -> None:
    with running(recorded(tmp_path / "runs", HOLDS)):
        run = only(tmp_path / "runs")
        assert snapshot(pid_of(run)).returncode == 0
    for words in (
        ["analyze", str(run)],
        ["sessions", str(run)],
        ["validate", str(run)],
        ["captures", str(run)],
    ):
        done = subprocess.run([*STORMLOG, *words], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 3), (words, done.stderr)
