"""The responsible line is the same in `stats`, the summary of `run`, `leaks`, `stormlog.heap` and bundles."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import stormlog.heap
from stormlog._native import code
from stormlog._torch.cuda_categories import responsible

STORMLOG = [sys.executable, "-m", "stormlog"]

KEEPS = """
import helper

held = []

def load():
    held.append(helper.make(40_000_000))

load()
"""
HELPER = """
def make(size):
    return bytearray(size)
"""
FAILS = """
import resource
import helper

held = [bytearray(30_000_000)]
limit = int(open("/proc/self/statm").read().split()[0]) * 4096 + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def load():
    held.append(helper.make(1 << 30))

load()
"""
NATIVE = """
#include <cstdlib>
#include <new>
#include <vector>

std::vector<char *> kept;

__attribute__((noinline)) void load_table() { kept.push_back(new char[40000000]()); }

int main() {
    load_table();
    std::abort();
}
"""


def command(*words: str) -> str:
    done = subprocess.run([*STORMLOG, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(folder: Path, *words: str, options: tuple[str, ...] = ()) -> tuple[Path, dict[str, Any]]:
    """The directory of the run, and the process in its summary."""
    run = [*STORMLOG, "run", "--json", "--wait", "--heap", "--dir", str(folder / "runs"), *options, "--"]
    done = subprocess.run([*run, *words], capture_output=True, text=True)
    (directory,) = (path for path in (folder / "runs").iterdir() if path.is_dir())
    outcome = json.loads(done.stderr[done.stderr.index("\n{") if "\n{" in done.stderr else 0 :])
    return directory, outcome["processes"][0]


def script(folder: Path, text: str) -> Path:
    """A program that calls an installed package."""
    packages = folder / "site-packages"
    packages.mkdir()
    (packages / "helper.py").write_text(HELPER)
    path = folder / "program.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(packages)!r})\n{text}")
    return path


def place(row: dict[str, Any]) -> str:
    return f"{row['file']}:{row['line']} {row['function']}"


def answers(run: Path, process: dict[str, Any]) -> dict[str, str]:
    """The largest holder, as each front end names it."""
    (capture,) = run.glob("*/heap.bin")
    leaks = json.loads(command("leaks", str(run), "--json"))
    largest = max(leaks, key=lambda row: int(row["own_bytes"]))
    found = {
        "stats": place(json.loads(command("stats", str(run), "--json"))["top_by_size"][0]),
        "leaks": place(largest["place"]),
        "run summary": process["heap"]["held_by"][0]["place"],
        "stormlog.heap": place(stormlog.heap.stats(capture)["top_by_size"][0]),
    }
    for evidence in run.glob("**/evidence.json"):
        found["bundle"] = json.loads(evidence.read_text())["held_by"][0]["place"]
    return found


def test_every_view_names_the_programs_own_line_of_a_python_stack(tmp_path: Path) -> None:
    program = script(tmp_path, KEEPS)
    found = answers(*record(tmp_path, sys.executable, str(program)))
    assert set(found.values()) == {f"{program}:9 load"}, found


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_every_view_names_the_caller_in_a_native_stack(tmp_path: Path) -> None:
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(NATIVE)
    build = ["c++", "-g", "-O1", "-fno-omit-frame-pointer", "-o", str(program), str(source)]
    subprocess.run(build, check=True)
    run, process = record(tmp_path, str(program), options=("--native",))
    found = answers(run, process)
    assert "bundle" in found
    assert set(found.values()) == {f"{source}:8 load_table()"}, found


def test_every_view_names_the_programs_own_line_of_a_request_that_failed_in_a_library(tmp_path: Path) -> None:
    program = script(tmp_path, FAILS)
    run, process = record(tmp_path, sys.executable, str(program))
    line = f"{program}:12 load"
    assert f" at {line} " in process["heap"]["failed_request"]
    (failed,) = (row for row in command("stats", str(run)).splitlines() if row.startswith("failed "))
    assert failed.endswith(line)
    (capture,) = run.glob("*/heap.bin")
    stack = stormlog.heap.stats(capture)["failed_requests"][-1]["stack"]
    at = code.responsible_frame([frame["file"] for frame in stack if frame["kind"] == "python"])
    assert at is not None
    assert place([frame for frame in stack if frame["kind"] == "python"][at]) == line
    # What held the memory when the request failed, in the summary, the bundle and the views.
    assert process["heap"]["held_when"] == "when the request failed"
    holder = f"{program}:7 <module>"
    assert process["heap"]["held_by"][0]["place"] == holder
    (evidence,) = run.glob("**/evidence.json")
    assert json.loads(evidence.read_text())["held_by"][0]["place"] == holder
    rows = json.loads(command("table", str(run), "--at-death", "--json"))
    assert place(rows[0]["stack"][0]) == holder


def test_stack_of_a_snapshot_has_the_responsible_frame_of_the_rule() -> None:
    stack = (
        "<eval_with_key>.3:7 forward",
        "/venv/lib/python3.11/site-packages/transformers/models/bert.py:90 forward",
        "/home/me/torch/model.py:12 step",
        "/home/me/train.py:3 main",
    )
    assert responsible(stack) == (stack[2], stack[3])
    assert responsible(("??:0 at::empty", stack[1])) == (stack[1], None)
    assert responsible(()) is None
    assert [code.is_own_code(file) for file in ("/home/me/a.py", "<string>", "??", "")] == [
        True,
        True,
        False,
        False,
    ]
