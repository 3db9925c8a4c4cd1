"""`stormlog run`: an end is deliberate with evidence only, and only failures are crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_command import STORMLOG, command, pid_of, start

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
STOPS_A_CHILD = f"""
import os, subprocess, time
child = subprocess.Popen({SLEEPER!r})
while not os.path.exists(os.environ["STORMLOG_RUN_DIR"] + f"/rank0-pid{{{{child.pid}}}}"):
    time.sleep(0.02)
child.{{how}}()
child.wait()
print(child.pid)
"""
SHORT_LIVED = """
import subprocess, sys, time
started = []
for _ in range(30):
    started.append(subprocess.Popen([sys.executable, "worker.py"]))
    time.sleep(0.013)
# They wait to be reaped: each that was met has its end recorded.
time.sleep(1)
"""
POOL = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(*pool.map(abs, range(-4, 0)))
"""


def run(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "main.py").write_text(code, encoding="utf-8")
    words = command(tmp_path / "runs", sys.executable, str(tmp_path / "main.py"))
    return subprocess.run(words, capture_output=True, text=True)


def analyzed(tmp_path: Path) -> tuple[int, Any]:
    words = [*STORMLOG, "analyze", str(tmp_path / "runs"), "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def ends(report: Any) -> list[str]:
    return sorted(process["ended"] for process in report["processes"])


def test_child_stopped_by_its_parent_is_not_a_crash(tmp_path: Path) -> None:
    for how in ("terminate", "kill"):
        (tmp_path / how).mkdir()
        done = run(tmp_path / how, STOPS_A_CHILD.format(how=how))
        assert done.returncode == 0, done.stderr
        code, report = analyzed(tmp_path / how)
        assert (code, ends(report)) == (0, ["completed", "deliberate"]), report["findings"]
        (stopped,) = [one for one in report["processes"] if one["ended"] == "deliberate"]
        assert stopped["pid"] == int(done.stdout)
        assert "by its parent, main.py (pid " in stopped["what_happened"], stopped
        assert "exited 0" in report["headline"][0] and "main.py" in report["headline"][0]


def test_child_that_is_killed_after_milliseconds_has_the_name_of_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some are met alive and have ended before their command line is read.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worker.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert run(tmp_path, SHORT_LIVED).returncode == 0
    _, report = analyzed(tmp_path)
    killed = [one["what_happened"] for one in report["processes"] if one["ended"] == "failed"]
    assert killed and all(text.startswith("worker.py (") for text in killed), killed


def test_pool_teardown_is_not_a_crash(tmp_path: Path) -> None:
    done = run(tmp_path, POOL)
    assert (done.returncode, done.stdout) == (0, "4 3 2 1\n"), done.stderr
    code, report = analyzed(tmp_path)
    assert code == 0 and "failed" not in ends(report), report["processes"]
    assert not [one for one in report["findings"] if one["kind"] == "crash"]


def test_exit_status_of_its_own_choice_is_deliberate_and_no_issue(tmp_path: Path) -> None:
    assert run(tmp_path, "import sys; sys.exit(3)").returncode == 3
    code, report = analyzed(tmp_path)
    assert (code, ends(report)) == (0, ["deliberate"])
    assert "called sys.exit(3)" in report["headline"][0]
    words = [*STORMLOG, "query", "issues", str(tmp_path / "runs"), "--json"]
    issues = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "OOM" not in issues.stdout, issues.stdout


def test_uncaught_exception_is_a_failure_with_its_line(tmp_path: Path) -> None:
    done = run(tmp_path, "raise ValueError('boom')")
    assert done.returncode == 1
    assert "  raised    ValueError: boom, at main.py:1 <module>" in done.stderr, done.stderr
    assert done.stderr.count("boom") <= 3, "the traceback has it twice, the answer once"
    assert ends(analyzed(tmp_path)[1]) == ["failed"]


def test_exception_that_another_hook_takes_is_still_a_failure(tmp_path: Path) -> None:
    run(tmp_path, "import sys\nsys.excepthook = lambda *a: None\nraise ValueError('boom')")
    assert ends(analyzed(tmp_path)[1]) == ["failed"]


def test_sigterm_of_an_unknown_sender_is_reported_as_such(tmp_path: Path) -> None:
    with start(tmp_path / "runs", *SLEEPER) as running:
        os.kill(pid_of(tmp_path / "runs"), signal.SIGTERM)
        _, said = running.communicate()
    assert "was terminated by SIGTERM from an unknown sender" in said, said
    code, report = analyzed(tmp_path)
    assert (code, ends(report)) == (0, ["unknown"])
    assert not [one for one in report["findings"] if one["kind"] in ("crash", "oom")]


def test_sigterm_to_the_supervisor_stops_the_program_deliberately(tmp_path: Path) -> None:
    with start(tmp_path / "runs", *SLEEPER) as running:
        pid_of(tmp_path / "runs")
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate()
    assert f"was stopped with SIGTERM by process {os.getpid()}" in said, said
    assert ends(analyzed(tmp_path)[1]) == ["deliberate"]


def test_leak_that_exits_0_is_the_answer_of_every_report(tmp_path: Path) -> None:
    leak = """
import time
kept = []
def keep():
    kept.append(bytearray(4 << 20))
for _ in range(60):
    keep()
    time.sleep(0.05)
"""
    done = run(tmp_path, leak)
    assert done.returncode == 0
    _, report = analyzed(tmp_path)
    first, held = report["headline"][:2]
    assert first.startswith("main.py (pid ") and "host memory grows" in first, report["headline"]
    assert "main.py:5 keep" in held and len(report["headline"]) <= 8
    said = done.stderr.splitlines()
    assert f"stormlog: {first}" in said and held in said, done.stderr
    (process,) = report["processes"]
    assert (process["program"], process["ended"]) == ("main.py", "completed")
    row = process["held"][0]
    assert {"memory", "bytes", "file", "line", "function", "kept_by"} <= set(row)
    assert (row["memory"], row["line"], row["function"]) == ("host", 5, "keep")
    for kind in ("text", "md", "html"):
        words = [*STORMLOG, "analyze", str(tmp_path / "runs"), "--format", kind]
        page = subprocess.run(words, capture_output=True, text=True).stdout
        assert page.index("main.py:5 keep") < 2500, kind


HANDLES = """
import resource, sys
kept = []
def fill():
    while True:
        kept.append(bytearray(20 << 20))
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
try:
    fill()
except MemoryError:
    kept.clear()
    print("out of memory", file=sys.stderr)
sys.exit(2)
"""


def test_program_that_handles_its_memory_error_and_gives_up_failed_for_want_of_memory(tmp_path: Path) -> None:
    assert run(tmp_path, HANDLES).returncode == 2
    _, report = analyzed(tmp_path)
    (process,) = report["processes"]
    assert (process["ended"], process["cause"], process["confidence"]) == ("failed", "memory_error", 0.8)
    assert "after a request for 20.00 MiB of host memory failed" in report["headline"][0], report["headline"]
    assert "main.py:6 fill" in "\n".join(report["headline"]), report["headline"]
    words = [*STORMLOG, "runs", "list", str(tmp_path / "runs"), "--json"]
    (row,) = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert row["state"] == "failed"


# A worker of a few milliseconds may end before the supervisor has met it.
WORKERS = """
import multiprocessing, os, sys, time
def meet():
    while not os.path.exists(os.environ["STORMLOG_RUN_DIR"] + f"/rank0-pid{{os.getpid()}}"):
        time.sleep(0.02)
def leave():
    meet()
    sys.exit(3)
def fail():
    meet()
    raise ValueError("boom")
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    for target in (leave, fail):
        worker = context.Process(target=target)
        worker.start()
        worker.join()
        print(worker.pid, worker.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_that_exits_with_a_status_is_deliberate_and_one_that_raises_failed(
    tmp_path: Path, method: str
) -> None:
    done = run(tmp_path, WORKERS.format(method=method))
    (left, three), (failed, one) = (map(int, line.split()) for line in done.stdout.splitlines())
    assert (three, one) == (3, 1), done.stderr
    _, report = analyzed(tmp_path)
    ended = {row["pid"]: row["ended"] for row in report["processes"]}
    assert (ended[left], ended[failed]) == ("deliberate", "failed"), report["processes"]
    assert "ValueError: boom, at main.py:11 fail" in "\n".join(report["headline"]), report["headline"]


STOPS_A_GROUP = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, __file__, "leads"], start_new_session=True, stdout=subprocess.PIPE)
member = int(child.stdout.readline())
for pid in (child.pid, member):
    while not os.path.exists(os.environ["STORMLOG_RUN_DIR"] + f"/rank0-pid{pid}"):
        time.sleep(0.02)
os.killpg(child.pid, signal.SIGTERM)
child.wait()
while os.path.exists(f"/proc/{member}"):
    time.sleep(0.02)
print(child.pid, member)
"""
LEADS = f"""
import sys
if sys.argv[1:] == ["leads"]:
    import subprocess, time
    print(subprocess.Popen({SLEEPER!r}).pid, flush=True)
    time.sleep(600)
"""


def test_signal_to_a_group_is_deliberate_for_every_member(tmp_path: Path) -> None:
    done = run(tmp_path, LEADS + STOPS_A_GROUP)
    assert done.returncode == 0, done.stderr
    _, report = analyzed(tmp_path)
    ended = {row["pid"]: row["ended"] for row in report["processes"]}
    assert [ended[int(pid)] for pid in done.stdout.split()] == ["deliberate"] * 2, report["processes"]
