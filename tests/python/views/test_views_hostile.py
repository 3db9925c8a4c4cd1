"""Every view and export of a capture with hostile names, of one that still grows, and of an empty one."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import xml.dom.minidom
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import PROGRAMS

PROGRAM = PROGRAMS / "hostile_names.py"
STORMLOG = [sys.executable, "-m", "stormlog"]
TEXTS = ["tree", "table", "summary", "stats", "leaks", "parse", "live", "diff"]
ROWS = ["tree", "table", "summary", "leaks", "flamegraph"]
DIRECTIONS = "\u061c\u200b\u200e\u200f\u2028\u202a\u202e\u2066\u2069\ufeff"
# A name may be long, but not as long as somebody wants it to be.
LONGEST = 2000


def stormlog(*words: str | Path) -> str:
    done = subprocess.run([*STORMLOG, *map(str, words)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def words(command: str, capture: Path) -> list[str | Path]:
    return [command, capture, capture] if command == "diff" else [command, capture]


def check_harmless(text: str) -> None:
    steering = {
        letter
        for letter in text
        if (ord(letter) < 32 and letter != "\n") or 0x7F <= ord(letter) < 0xA0 or letter in DIRECTIONS
    }
    assert not steering


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "heap.bin"
    run = [*STORMLOG, "run", "--quiet", "--dir", str(path.parent / "runs"), "--output", str(path), "--"]
    subprocess.run([*run, sys.executable, str(PROGRAM), "0"], check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("growing")
    run = [
        *STORMLOG,
        "run",
        "--quiet",
        "--heap",
        "--dir",
        str(root),
        "--",
        sys.executable,
        str(PROGRAM),
        "600",
    ]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        (directory,) = root.iterdir()
        yield directory
        running.terminate()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("empty")
    (folder / "nothing.c").write_text("int main(void) { return 0; }")
    subprocess.run([compiler, "-o", str(folder / "nothing"), str(folder / "nothing.c")], check=True)
    path = folder / "heap.bin"
    run = [*STORMLOG, "run", "--quiet", "--dir", str(folder / "runs"), "--output", str(path), "--"]
    subprocess.run([*run, str(folder / "nothing")], check=True)
    return path


@pytest.mark.parametrize("command", TEXTS)
def test_names_are_only_names(hostile: Path, command: str) -> None:
    text = stormlog(*words(command, hostile))
    check_harmless(text)
    if command != "parse":
        assert max(map(len, text.splitlines())) < LONGEST


@pytest.mark.parametrize("command", [*ROWS, "diff", "stats", "live"])
def test_scripts_get_the_names_as_they_are(hostile: Path, command: str) -> None:
    rows: Any = json.loads(stormlog(*words(command, hostile), "--json"))
    if command in ROWS:
        names = {frame["function"] for row in rows for frame in row.get("stack", [])}
        assert command == "leaks" or "evil\x1b]0;owned\x07\x1b[2J\u202e\u2066x" in names
        assert all({"own_bytes", "count"} <= row.keys() for row in rows)


def test_files_of_other_tools_hold_whole(hostile: Path, tmp_path: Path) -> None:
    whole = sum(row["own_bytes"] for row in json.loads(stormlog("tree", hostile, "--json")))
    made = {}
    for name in ("svg", "speedscope", "collapsed", "pprof", "firefox"):
        made[name] = tmp_path / name
        stormlog("flamegraph", hostile, "--format", name, "-o", made[name])
    for name in ("gprof2dot", "csv"):
        made[name] = tmp_path / name
        stormlog("transform", name, hostile, "-o", made[name])
    picture = made["svg"].read_text()
    xml.dom.minidom.parseString(picture)
    assert "<img" not in picture
    check_harmless(picture)
    for name in ("speedscope", "firefox", "gprof2dot"):
        json.loads(made[name].read_text())
    folded = made["collapsed"].read_text()
    check_harmless(folded)
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == whole
    with made["csv"].open(newline="") as lines:
        rows = list(csv.reader(lines))
    assert len({len(row) for row in rows}) == 1
    assert made["pprof"].read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.parametrize("command", TEXTS)
def test_running_program_can_be_viewed(growing: Path, command: str) -> None:
    text = stormlog(*words(command, growing))
    assert text.strip()
    check_harmless(text)


def test_page_of_a_running_program(growing: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    stormlog("flamegraph", growing, "-o", page)
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("command", [command for command in TEXTS if command != "parse"])
def test_an_empty_capture_has_a_word_for_it(empty: Path, command: str) -> None:
    text = stormlog(*words(command, empty))
    friendly = (
        "Nothing was allocated",
        "No memory was left allocated",
        "No difference",
        "nothing is allocated",
        " 0 allocations",
    )
    assert any(word in text for word in friendly), text


@pytest.mark.parametrize("command", [*ROWS, "diff"])
def test_an_empty_capture_is_an_empty_list_to_scripts(empty: Path, command: str) -> None:
    assert json.loads(stormlog(*words(command, empty), "--json")) == []
