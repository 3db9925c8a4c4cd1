"""Which lines held the memory of host and GPU when a program died; the allocator of the GPU is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from native import STORMLOG
from places import PROGRAMS
from run_command import until

HEAP_PROGRAMS = PROGRAMS / "heap"
MB = 1 << 20
START = """
import os, signal, sys, time
sys.path.insert(0, os.environ["PROGRAMS"])
import stand_in
cuda, c10, allocate, free = stand_in.load()
MB = 1 << 20
host = bytearray(40 * MB)                     # host
def weights():
    return allocate(0, 64 * MB, 0)            # weights
def keep(kept):
    for _ in range(5):
        kept.append(allocate(0, 20 * MB, 1))  # kept
weights()
keep([])
"""


def started(tmp_path: Path, stand_in: Path, rest: str) -> subprocess.Popen[str]:
    program = tmp_path / "train.py"
    program.write_text(START + rest, encoding="utf-8")
    words = [STORMLOG, "run", "--heap", "--dir", str(tmp_path / "runs"), "--", sys.executable, str(program)]
    known = {**os.environ, "STAND_IN": str(stand_in), "PROGRAMS": str(HEAP_PROGRAMS)}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known)


def shown(*words: str) -> str:
    return subprocess.run([STORMLOG, *words], capture_output=True, text=True, check=True).stdout


def line_of(tmp_path: Path, comment: str) -> int:
    lines = (tmp_path / "train.py").read_text(encoding="utf-8").splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


def held_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if " MiB  " in line and "train.py:" in line]


def held_rows(tmp_path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(shown("oom", "show", str(tmp_path / "runs"), "--json"))["held"]
    sizes = [row["bytes"] for row in rows]
    assert sizes == sorted(sizes, reverse=True), "largest first"
    assert all({"memory", "bytes", "file", "line", "function", "kept_by"} <= set(row) for row in rows)
    return rows


def check_rows(tmp_path: Path) -> None:
    by_line = {(row["memory"], row["line"]): row for row in held_rows(tmp_path)}
    kept = by_line["cuda:0", line_of(tmp_path, "kept")]
    weights = by_line["cuda:0", line_of(tmp_path, "weights")]
    host = by_line["host", line_of(tmp_path, "host")]
    assert (kept["bytes"], weights["bytes"], host["bytes"] // MB) == (100 * MB, 64 * MB, 40)
    assert (kept["function"], weights["function"]) == ("keep", "weights")
    assert kept["file"].endswith("train.py")


def test_holders_of_each_memory_are_named_after_sigkill(tmp_path: Path, stand_in: Path) -> None:
    with started(tmp_path, stand_in, "os.kill(os.getpid(), signal.SIGKILL)\n") as run:
        _, said = run.communicate()
    assert run.returncode == -signal.SIGKILL
    check_rows(tmp_path)
    page = shown("oom", "show", str(tmp_path / "runs"))
    # A bundle that no supervisor completed: the capture of the same process has the lines.
    (path,) = (tmp_path / "runs").glob("*/rank*/oom_dump*/metadata.json")
    metadata = json.loads(path.read_text(encoding="utf-8"))
    del metadata["custom_metadata"]["heap"]
    path.write_text(json.dumps(metadata), encoding="utf-8")
    check_rows(tmp_path)
    for text in (said, page, shown("oom", "show", str(tmp_path / "runs"))):
        held = held_lines(text)
        assert "cuda:0" in held[0] and f"train.py:{line_of(tmp_path, 'kept')} keep" in held[0], text
        assert "100.0 MiB" in held[0] and len(held) == len(set(held)), text
    assert "cuda:0    peak 164.0 MiB · at the end 164.0 MiB" in said, said


def test_stats_name_the_lines_where_the_supervisor_was_killed_too(tmp_path: Path, stand_in: Path) -> None:
    with started(tmp_path, stand_in, "print(os.getpid(), flush=True)\ntime.sleep(600)\n") as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        run.kill()
        run.wait()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists())
    (directory,) = (tmp_path / "runs").iterdir()
    (device,) = json.loads(shown("stats", str(directory), "--json"))["devices"]
    rows = [(row["line"], row["bytes"]) for row in device["top"]]
    assert rows == [(line_of(tmp_path, "kept"), 100 * MB), (line_of(tmp_path, "weights"), 64 * MB)]
    assert device["categories"] == {"data": {"bytes": 164 * MB, "blocks": 6}}, "the program's own lines"


def test_the_memory_whose_request_failed_comes_first(tmp_path: Path, stand_in: Path) -> None:
    rest = """
cuda.stand_in_capacity(256 * MB)
more = bytearray(300 * MB)
assert allocate(0, 200 * MB, 2) == 0          # failed
class OutOfMemoryError(RuntimeError):
    pass
OutOfMemoryError.__module__ = "torch"
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 200.00 MiB.")
"""
    with started(tmp_path, stand_in, rest) as run:
        _, said = run.communicate()
    assert run.returncode == 1, said
    page = shown("oom", "show", str(tmp_path / "runs"))
    for text in (said, page):
        assert "cuda:0: a request for 200.0 MiB at " in text, text
        assert f"train.py:{line_of(tmp_path, 'failed')} <module> (164.0 MiB allocated" in text, text
        held = held_lines(text)
        assert "cuda:0" in held[0] and held[0].endswith("when the request failed"), text
        assert "host" in held[2], "less than the host holds, but that did not fail"
    assert held_rows(tmp_path)[0]["memory"] == "host", "the largest"


def test_live_shows_the_memory_of_a_gpu(tmp_path: Path, stand_in: Path) -> None:
    with started(tmp_path, stand_in, "print('up', flush=True)\ntime.sleep(600)\n") as run:
        try:
            assert run.stdout is not None and run.stdout.readline() == "up\n"
            (directory,) = (tmp_path / "runs").iterdir()

            def look(*words: str) -> dict[str, Any]:
                found: dict[str, Any] = json.loads(shown("live", str(directory), "--json", *words))
                heap: dict[str, Any] = found["process"]["heap"]
                return heap

            until(lambda: [row["bytes"] for row in look()["memories"][1:]] == [164 * MB])
            host, gpu = look(), look("--memory", "cuda:0")
            text = shown("live", str(directory), "--once", "--memory", "cuda:0")
            refused = subprocess.run(
                [STORMLOG, "live", str(directory), "--once", "--memory", "cuda:7"],
                capture_output=True,
                text=True,
            )
        finally:
            run.terminate()
    assert host["memory"] == "host" and [row["memory"] for row in host["memories"]] == ["host", "cuda:0"]
    assert gpu["memory"] == "cuda:0" and gpu["bytes"] == 164 * MB
    own = {line["line"]: line["own_bytes"] for line in gpu["lines"]}
    assert own[line_of(tmp_path, "kept")] == 100 * MB
    assert "GPU cuda:0 164.0 MiB" in text and "Host" in text and "cuda:0 164.0 MiB" in text, text
    assert refused.returncode != 0 and "it has host, cuda:0" in refused.stderr, refused.stderr
