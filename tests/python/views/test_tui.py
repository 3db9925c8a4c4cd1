"""`stormlog tree` and `stormlog live` on a real pseudo-terminal, seen through a terminal emulator."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyte")
from places import PROGRAMS
from pseudo_terminal import PATIENCE, Terminal

PROGRAM = PROGRAMS / "holds_by_line.py"
STORMLOG = [sys.executable, "-m", "stormlog"]
# The line that holds most.
BIG = "holds_by_line.py:14"


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(*words: str, **options: Any) -> Terminal:
        opened.append(Terminal([*STORMLOG, *words], **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("capture") / "heap.bin"
    run = [*STORMLOG, "run", "--dir", str(path.parent / "runs"), "--output", str(path), "--"]
    subprocess.run([*run, sys.executable, str(PROGRAM), "0"], check=True, capture_output=True)
    return path


class Running:
    """The program under `stormlog run --heap`, without a terminal."""

    def __init__(self, root: Path) -> None:
        run = [*STORMLOG, "run", "--heap", "--dir", str(root), "--", sys.executable, str(PROGRAM), "600"]
        self.process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        (self.directory,) = root.iterdir()
        self.pid: int = json.loads((self.directory / "run.json").read_text())["pid"]

    def end(self) -> None:
        # The supervisor may be at work on a program that has ended already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    program = Running(tmp_path / "runs")
    yield program
    program.end()


def test_tree_keys_search_source_and_resize(terminal: Callable[..., Terminal], capture: Path) -> None:
    tree = terminal("tree", str(capture))
    tree.wait_for("everything")
    tree.wait_for("q leave")
    tree.press("/big\r")
    tree.wait_for("big  ")
    tree.press("s")
    shown = tree.wait_for("bytearray(64 << 20)")
    assert "holds_by_line.py" in shown
    tree.press("s")
    tree.wait_for(lambda text: "bytearray(64" not in text)
    tree.press("?")
    tree.wait_for("hide import frames")
    tree.press("x")
    tree.wait_for(lambda text: "hide import frames" not in text)
    tree.press("c")
    tree.wait_for("▸")
    tree.press("\x1b[B\x1b[C")
    tree.wait_for("▾")
    tree.resize(120, 40)
    tree.wait_for(lambda text: "q leave" in text.splitlines()[39])
    tree.resize(30, 8)
    tree.wait_for(lambda text: "q leave" in text.splitlines()[7])
    tree.resize(4, 2)
    tree.resize(80, 24)
    tree.wait_for(lambda text: "q leave" in text.splitlines()[23])
    tree.press("q")
    assert tree.leave() == 0


def test_a_dumb_terminal_gets_plain_text(terminal: Callable[..., Terminal], capture: Path) -> None:
    tree = terminal("tree", str(capture), TERM="dumb")
    end = time.monotonic() + PATIENCE
    while tree.process.poll() is None and time.monotonic() < end:
        tree.read(0.1)
    while tree.read(0.1):
        pass
    assert tree.process.returncode == 0
    assert BIG.encode() in tree.seen and b"\x1b" not in tree.seen
    assert termios.tcgetattr(tree.theirs) == tree.before


def test_hostile_names_do_nothing(terminal: Callable[..., Terminal], capture: Path) -> None:
    tree = terminal("tree", str(capture), columns=200)
    tree.wait_for("everything")
    tree.press("e/evil\r")
    tree.wait_for("evil␛]0;owned␇␛[2J")
    tree.wait_for("␛[31mhostile␇.py")
    tree.press("q")
    assert tree.leave() == 0
    assert tree.screen.title == ""
    assert b"\x1b]0;" not in tree.seen
    assert "\u202e".encode() not in tree.seen


def test_live_shows_lines_orders_filters_and_pauses(
    terminal: Callable[..., Terminal], running: Running
) -> None:
    live = terminal("live", str(running.directory), columns=120, lines=40)
    shown = live.wait_for(BIG)
    assert "heap" in shown and "rss" in shown and "all 2 threads" in shown
    rows = [line for line in shown.splitlines() if "holds_by_line.py:" in line]
    assert rows[0].split()[:4] == ["64.00", "MiB", "64.00", "MiB"], "the largest first"
    live.press("a")
    live.wait_for("▾COUNT")
    live.press("t")
    live.wait_for("▾TOTAL")
    live.press(">")
    live.wait_for("thread 1 of 2")
    live.press(">")
    live.wait_for(lambda text: "thread 2 of 2" in text and "in_thread" in text and "big" not in text)
    live.press(">")
    live.wait_for("all 2 threads")
    live.press("/small\r")
    live.wait_for(lambda text: "small  " in text and "big  " not in text)
    live.press("\r")
    live.wait_for("bytearray(4 << 10)")
    live.press(" ")
    live.wait_for("PAUSED")
    live.press(" ")
    live.wait_for(lambda text: "PAUSED" not in text)
    live.resize(60, 15)
    live.wait_for(lambda text: "q leave" in text.splitlines()[14])
    live.press("q")
    assert live.leave() == 0


def test_live_of_a_process_number_says_how_it_ended(
    terminal: Callable[..., Terminal], running: Running
) -> None:
    live = terminal("live", str(running.pid))
    live.wait_for(BIG)
    os.kill(running.pid, signal.SIGKILL)
    live.wait_for("ended: killed by SIGKILL")
    live.wait_for(BIG)
    live.press("q")
    assert live.leave() == 0


def test_process_view_goes_back_in_time_and_answers_after_the_death(
    terminal: Callable[..., Terminal], running: Running
) -> None:
    view = terminal("tui", str(running.directory), columns=120, lines=40)
    view.wait_for("heap now")
    view.wait_for(BIG)
    view.wait_for("RSS")
    view.press("\x1b[1;2D")
    view.wait_for("heap at ")
    view.press("f")
    view.wait_for("everything")
    view.press("f")
    view.press("\x1b[F")
    view.wait_for("heap now")
    os.kill(running.pid, signal.SIGKILL)
    view.wait_for("was killed with SIGKILL")
    view.wait_for("held by")
    view.wait_for("heap at the end")
    view.press("q")
    assert view.leave() == 0


def test_ctrl_c_leaves_with_130(terminal: Callable[..., Terminal], running: Running) -> None:
    live = terminal("live", str(running.directory))
    live.wait_for("q leave")
    live.press("\x03")
    assert live.leave() == 130


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_gives_the_terminal_back_first(
    terminal: Callable[..., Terminal], running: Running, name: str
) -> None:
    live = terminal("live", str(running.directory))
    live.wait_for("q leave")
    live.process.send_signal(signal.Signals[name])
    assert live.leave() == -signal.Signals[name]


@pytest.mark.parametrize("by_key", [True, False])
def test_ctrl_z_and_back(terminal: Callable[..., Terminal], capture: Path, by_key: bool) -> None:
    tree = terminal("tree", str(capture))
    tree.wait_for("q leave")
    if by_key:
        tree.press("\x1a")
    else:
        tree.process.send_signal(signal.SIGTSTP)
    end = time.monotonic() + PATIENCE
    while Path(f"/proc/{tree.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert time.monotonic() < end, "it does not stop"
        tree.read(0.05)
    while tree.read(0.1):
        pass
    tree.check_given_back()
    tree.screen.reset()
    tree.process.send_signal(signal.SIGCONT)
    tree.wait_for("q leave")
    assert termios.tcgetattr(tree.theirs) != tree.before
    tree.press("q")
    assert tree.leave() == 0


def test_no_color(terminal: Callable[..., Terminal], running: Running) -> None:
    plain = terminal("live", str(running.directory), NO_COLOR="1")
    plain.wait_for(BIG)
    plain.press("q")
    assert plain.leave() == 0
    coloured = terminal("live", str(running.directory))
    coloured.wait_for(BIG)
    coloured.press("q")
    assert coloured.leave() == 0
    is_coloured = [
        any(code in each.seen for code in (b"\x1b[38;5;", b"\x1b[36m", b"\x1b[1;36m"))
        for each in (plain, coloured)
    ]
    assert is_coloured == [False, True]


def test_once_in_a_pipe(running: Running) -> None:
    for target in (str(running.directory), str(running.pid)):
        done = subprocess.run(
            [*STORMLOG, "live", target, "--once"], capture_output=True, text=True, check=True
        )
        assert BIG in done.stdout and "\x1b" not in done.stdout
        screen = json.loads(
            subprocess.run(
                [*STORMLOG, "live", target, "--json"], capture_output=True, text=True, check=True
            ).stdout
        )
        assert screen["process"]["pid"] == running.pid
        assert screen["process"]["heap"]["bytes"] > 92 << 20
        big = next(line for line in screen["process"]["heap"]["lines"] if line["function"] == "big")
        assert (f"{PROGRAM.name}:{big['line']}", big["own_bytes"] >> 20) == (BIG, 64)


def test_process_that_is_not_recorded(terminal: Callable[..., Terminal]) -> None:
    with subprocess.Popen([sys.executable, str(PROGRAM), "600"], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        live = terminal("live", str(program.pid))
        shown = live.wait_for("rss")
        assert "is not recorded" in shown
        program.terminate()
        live.wait_for("ended: killed by SIGTERM")
        live.press("q")
        assert live.leave() == 0


def test_missing_target_gives_one_sentence(tmp_path: Path) -> None:
    for target in (str(tmp_path), str(tmp_path / "no"), "4194304"):
        done = subprocess.run([*STORMLOG, "live", target], capture_output=True, text=True)
        assert done.returncode == 5, done
        assert done.stderr.startswith("Error: ") and done.stdout == ""


NATIVE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char *kept;
void hold_it(void) { kept = malloc(32 << 20); memset(kept, 1, 32 << 20); }
int main(void) { hold_it(); puts("ready"); fflush(stdout); sleep(600); return 0; }
"""


@pytest.mark.parametrize("option", ["--native", "--heap"])
def test_a_program_without_python(tmp_path: Path, option: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, program = tmp_path / "keeps.c", tmp_path / "keeps"
    source.write_text(NATIVE)
    subprocess.run([compiler, "-g", "-O0", "-o", str(program), str(source)], check=True)
    run = [*STORMLOG, "run", option, "--dir", str(tmp_path / "runs"), "--", str(program)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        look = [*STORMLOG, "live", str(tmp_path / "runs"), "--json"]
        screen = json.loads(subprocess.run(look, capture_output=True, text=True, check=True).stdout)
        running.terminate()
    heap = screen["process"]["heap"]
    assert sum(line["own_bytes"] for line in heap["lines"]) == heap["bytes"] >= 32 << 20
    largest = max(heap["lines"], key=lambda line: line["own_bytes"])
    if option == "--native":
        assert (largest["function"], largest["file"], largest["line"]) == ("hold_it", str(source), 7)
    else:
        assert largest["function"] == "(no stack)", "nothing is left out"
