"""What keeps memory: reported when a program exits with a large heap or runs out of it, and on request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import PROGRAMS
from run_command import STORMLOG, command, pid_of, program

MIB = 1 << 20
#: However slow the machine is, paths are followed to their ends.
PATIENT = {**os.environ, "STORMLOG_WHY": "30000"}
LINES = (PROGRAMS / "retains.py").read_text().splitlines()


def line_of(text: str) -> int:
    (number,) = [number for number, line in enumerate(LINES, 1) if text in line]
    return number


def run(
    directory: Path, *words: str, options: tuple[str, ...] = (), env: dict[str, str] = PATIENT
) -> subprocess.CompletedProcess[str]:
    words = tuple(command(directory, *words, options=("--quiet", *options)))
    return subprocess.run(words, capture_output=True, text=True, env=env)


def why(*arguments: str) -> Any:
    done = subprocess.run(
        [*STORMLOG, "why", *arguments, "--json"], capture_output=True, text=True, check=True
    )
    (process,) = json.loads(done.stdout)["processes"]
    return process


FORESEEN = """
import os, sys, time
report = f"{os.environ['STORMLOG_RUN_DIR']}/retained-{os.getpid()}.json"
kept = []
def keep():
    kept.append(bytearray(1 << 20))
while len(kept) < 900:
    keep()
    time.sleep(0.02)
    if os.path.exists(report):
        print(open(report).read())
        break
"""


def test_process_reports_what_keeps_its_memory_when_a_limit_is_forecast(tmp_path: Path) -> None:
    script = tmp_path / "grows.py"
    script.write_text(FORESEEN)
    done = run(tmp_path / "runs", sys.executable, str(script), options=("--limit", "1GiB"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["reason"] == "forecast" and report["held"], report
    # Within the 50 ms that it may take, on a busy machine not every path is followed.
    kept = [row for row in report["held"] if "`kept`, a list of " in row["kept_by"]]
    assert kept or not report["complete"], report


def test_many_small_blocks_of_a_sampled_heap_have_their_holder_and_its_line(tmp_path: Path) -> None:
    script = tmp_path / "strings.py"
    script.write_text(
        "seen, names = {}, []\n"
        "def remember(number):\n"
        "    seen[number] = str(number) * 1000\n"
        "for number in range(10000, 40000):\n"
        "    remember(number)\n"
    )
    assert run(tmp_path / "runs", sys.executable, str(script)).returncode == 0
    (largest,) = [row for row in why(str(tmp_path / "runs"))["held"] if row["bytes"] > 100 * MIB]
    assert largest["kept_by"] == "`seen`, a dict of 30 000 strings, global of __main__"
    assert (largest["line"], largest["function"]) == (3, "remember")


def test_program_that_ends_large_reports_each_holder_with_its_line(tmp_path: Path) -> None:
    done = run(tmp_path, *program("retains.py"), options=("--heap",))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    report = why(str(tmp_path))
    assert (report["reason"], report["complete"], report["program"]) == ("exit", True, "retains.py")
    held = {row["kept_by"]: row for row in report["held"] if row["bytes"] > 8 * MIB}
    expected = {
        "`CACHE`, a dict of 12 bytearrays, global of __main__": "CACHE[f",
        "`Registry.seen`, a list of 12 bytearrays, class attribute in __main__": "Registry.seen.extend",
        "`Model.predict`, an lru_cache, class attribute in __main__": "return bytearray(MIB)",
        "`session.history`, a list of 12 bytearrays, global of __main__": "session.history.append",
        "`config['limits']['rows']`, a list of 12 bytearrays, global of __main__": 'config["limits"]["rows"]',
        f"`activations`, a list of 12 bytearrays, closure of hook() at retains.py:{line_of('def hook(')}": (
            "hook(bytearray(MIB))"
        ),
        f"`table`, a bytearray, local of load() at retains.py:{line_of('raise ValueError')}, whose frame is "
        "kept by the traceback of ValueError, in `ERRORS`, a list of 1 ValueError, global of __main__": (
            "table = bytearray"
        ),
        "`window`, a list of 12 bytearrays, local of the suspended generator stream() at "
        f"retains.py:{line_of('yield len(window)')}, in `STREAMS`, a list of 1 generator, global of "
        "__main__": "window = [",
        "cycle Node → Node → Node": "one.payload = bytearray",
    }
    assert set(held) == set(expected)
    for kept_by, text in expected.items():
        row = held[kept_by]
        assert row["bytes"] == pytest.approx(12 * MIB, rel=0.02), kept_by
        assert (Path(row["file"]).name, row["line"]) == ("retains.py", line_of(text)), kept_by
    one = why(str(tmp_path), f"retains.py:{line_of('session.history.append')}")
    assert [row["kept_by"] for row in one["held"]][:1] == [
        "`session.history`, a list of 12 bytearrays, global of __main__"
    ]


def test_uncaught_memory_error_names_the_local_that_held_the_memory(tmp_path: Path) -> None:
    done = run(tmp_path, *program("retains.py", "fails"))
    assert done.returncode == 1 and done.stderr.rstrip().endswith("MemoryError: no more")
    report = why(str(tmp_path))
    assert report["reason"] == "exception"
    largest = report["held"][0]
    place = f"train() at retains.py:{line_of('raise MemoryError')}"
    assert largest["kept_by"] == f"`losses`, a list of 40 bytearrays, local of {place}"
    assert largest["line"] == line_of("losses.append")


@pytest.mark.parametrize(
    ("call", "kept_by"),
    [
        ("cache = Cache()\ncache.fill()", "`cache.rows`, a list of 40 bytearrays, global of __main__"),
        ("Cache().fill()", "`self.rows`, a list of 40 bytearrays, local of fill() at method.py:6"),
    ],
    ids=["global", "nameless"],
)
def test_container_filled_by_a_method_is_named_by_its_owner(tmp_path: Path, call: str, kept_by: str) -> None:
    script = tmp_path / "method.py"
    script.write_text(
        "class Cache:\n    def __init__(self): self.rows = []\n    def fill(self):\n"
        "        for _ in range(40):\n            self.rows.append(bytearray(2 << 20))\n"
        f"        raise MemoryError('no more')\n{call}\n"
    )
    done = run(tmp_path / "runs", sys.executable, str(script))
    assert done.returncode == 1, done.stderr
    assert why(str(tmp_path / "runs"))["held"][0]["kept_by"] == kept_by


def test_program_without_address_space_still_reports(tmp_path: Path) -> None:
    script = tmp_path / "greedy.py"
    script.write_text(
        "def grow():\n    rows = []\n    while True:\n        rows.append(bytearray(4 << 20))\ngrow()\n"
    )
    done = run(tmp_path / "runs", sys.executable, str(script), options=("--limit", "400MiB"))
    assert done.returncode == 1 and "MemoryError" in done.stderr
    largest = why(str(tmp_path / "runs"))["held"][0]
    assert largest["kept_by"].startswith("`rows`, a list of ")
    assert largest["kept_by"].endswith(" bytearrays, local of grow() at greedy.py:4")


@pytest.mark.parametrize("how", ["flag", "variable", "small"])
def test_nothing_is_reported_when_switched_off_or_small(tmp_path: Path, how: str) -> None:
    words = [sys.executable, "-c", "print(1)"] if how == "small" else program("retains.py")
    env = {**os.environ, "STORMLOG_WHY": "off"} if how == "variable" else dict(os.environ)
    run(tmp_path, *words, options=("--no-why",) if how == "flag" else (), env=env)
    assert list(tmp_path.glob("*/retained-*")) == []
    done = subprocess.run([*STORMLOG, "why", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode != 0 and "`stormlog why PID` asks a running one" in done.stderr


@pytest.mark.skipif(
    shutil.which("gdb") is None and not hasattr(sys, "remote_exec"), reason="needs gdb or Python 3.14"
)
def test_running_process_answers_and_continues(tmp_path: Path) -> None:
    script = tmp_path / "holds.py"
    script.write_text(
        "import select, sys\ndef hold():\n    kept = [bytearray(1 << 20) for _ in range(40)]\n"
        "    print('ready', flush=True)\n"
        "    while not select.select([sys.stdin], [], [], 0.05)[0]:\n        pass\n"
        "    print(len(kept))\nhold()\n"
    )
    runs = tmp_path / "runs"
    with subprocess.Popen(
        command(runs, sys.executable, str(script)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=PATIENT,
    ) as running:
        assert running.stdout and running.stdin and running.stdout.readline() == "ready\n"
        report = why(str(pid_of(runs)))
        out, _ = running.communicate("end\n")
    assert report["reason"] == "request" and running.returncode == 0 and out == "40\n"
    kept_by = [row["kept_by"] for row in report["held"]]
    assert any(
        text.startswith("`kept`, a list of 40 bytearrays, local of hold() at holds.py:") for text in kept_by
    )


WORKER = """
import multiprocessing
kept = []
def grow():
    for _ in range(60):
        kept.append(bytearray(1 << 20))
def fail():
    grow()
    raise MemoryError
if __name__ == "__main__":
    worker = multiprocessing.get_context({method!r}).Process(target={target})
    worker.start()
    worker.join()
    print(worker.pid)
"""


@pytest.mark.parametrize(("method", "target"), [("fork", "grow"), ("fork", "fail"), ("spawn", "fail")])
def test_worker_of_multiprocessing_reports_what_keeps_its_memory(
    tmp_path: Path, method: str, target: str
) -> None:
    (tmp_path / "main.py").write_text(WORKER.format(method=method, target=target))
    done = run(tmp_path / "runs", sys.executable, str(tmp_path / "main.py"))
    process = why(str(tmp_path / "runs"))
    assert process["pid"] == int(done.stdout), process
    assert process["held"][0]["kept_by"] == "`kept`, a list of 60 bytearrays, global of __main__", process
