"""`stormlog run --live`: the program and the screen share a terminal without fighting for it."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyte")
from places import PROGRAMS
from pseudo_terminal import Terminal

PROGRAM = PROGRAMS / "prints_and_waits.py"
STORMLOG = [sys.executable, "-m", "stormlog"]
# The line that holds the memory.
BIG = "prints_and_waits.py:14"


class Live:
    """A run with its screen, and the file that ends the program."""

    def __init__(self, folder: Path, *options: str, columns: int = 80, lines: int = 24) -> None:
        self.runs = folder / "runs"
        self.over = folder / "over"
        run = [*STORMLOG, "run", "--live", "--dir", str(self.runs), *options, "--"]
        self.command = [*run, sys.executable, str(PROGRAM), str(self.over)]
        self.terminal = Terminal(self.command, columns, lines)

    def output(self) -> str:
        (run,) = self.runs.iterdir()
        return (run / "output.log").read_text()

    def after_the_screen(self) -> str:
        """What stands on the terminal once the screen is left."""
        left = self.terminal.seen.rindex(b"\x1b[?1049l")
        return re.sub(r"\x1b\[[0-9;?]*[a-z]", "", self.terminal.seen[left:].decode(), flags=re.I)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[..., Live]]:
    started: list[Live] = []

    def start(*options: str, **terminal: int) -> Live:
        started.append(Live(tmp_path, *options, **terminal))
        return started[-1]

    yield start
    for each in started:
        each.over.touch()
        each.terminal.close()


def test_the_screen_is_left_when_the_program_ends(live: Callable[..., Live]) -> None:
    run = live()
    shown = run.terminal.wait_for(BIG)
    assert "heap" in shown and "rss" in shown
    run.terminal.wait_for("printed  holding")
    run.over.touch()
    assert run.terminal.leave() == 7
    output = run.output()
    assert "stdin is a terminal: False stdout: False" in output
    assert output.count("line ") == 40 and "to stderr" in output
    after = run.after_the_screen()
    assert "line 39" in after and "line 5\r" not in after, "only the end"
    assert "the end of what the program printed" in after
    assert "called sys.exit(7)" in after and "interrupts: 0" in after
    assert re.search(r"held by|heap +peak", after), after
    assert "output.log" in after and "stormlog flamegraph" in after


def test_ctrl_c_is_the_programs(live: Callable[..., Live]) -> None:
    run = live()
    run.terminal.wait_for(BIG)
    run.terminal.press("\x03")
    assert run.terminal.leave() == 7
    assert "interrupts: 1\n" in run.output(), "once, as without a screen"


def test_q_leaves_and_the_program_continues(live: Callable[..., Live]) -> None:
    run = live()
    run.terminal.wait_for(BIG)
    run.terminal.press("q")
    run.terminal.wait_for("the end of what the program printed")
    run.terminal.check_given_back()
    assert run.terminal.process.poll() is None
    run.terminal.press("\x03")
    assert run.terminal.leave() == 7
    after = run.after_the_screen()
    assert "interrupts: 1" in after, "what it prints from then on is seen"
    assert "called sys.exit(7)" in after


def test_a_signal_to_the_supervisor_reaches_the_program(live: Callable[..., Live]) -> None:
    run = live()
    run.terminal.wait_for(BIG)
    run.terminal.process.send_signal(signal.SIGTERM)
    assert run.terminal.leave() == -signal.SIGTERM
    assert "SIGTERM" in run.after_the_screen()


def test_sizes(live: Callable[..., Live]) -> None:
    run = live(columns=80, lines=24)
    run.terminal.wait_for(lambda text: BIG in text and "q leave" in text.splitlines()[23])
    for columns, lines in ((120, 40), (30, 8), (4, 2), (80, 24)):
        run.terminal.resize(columns, lines)
        if columns > 4:
            run.terminal.wait_for(
                lambda text, last=lines - 1: "q leave" in text.splitlines()[last]  # type: ignore[misc]
            )
    run.over.touch()
    assert run.terminal.leave() == 7


@pytest.mark.parametrize("options", [("--no-heap",), ("--no-heap", "--no-gpu")])
def test_without_the_heap(live: Callable[..., Live], options: tuple[str, ...]) -> None:
    run = live(*options)
    run.terminal.wait_for("is not recorded")
    run.over.touch()
    assert run.terminal.leave() == 7
    assert "stormlog flamegraph" not in run.after_the_screen()


def test_in_a_shell_with_ctrl_z_and_streams_of_its_own(tmp_path: Path) -> None:
    shell = Terminal(["bash", "--norc", "--noprofile", "-i"], columns=100, PS1="$ ", HISTFILE="")
    over, errors = tmp_path / "over", tmp_path / "errors"
    words = [*STORMLOG, "run", "--live", "--quiet", "--dir", str(tmp_path / "runs"), "--", sys.executable]
    command = shlex.join([*words, str(PROGRAM), str(over)])
    try:
        shell.press(f"{command} 2> {errors}; echo status $?\r")
        shell.wait_for(BIG)
        shell.press("\x1a")
        shell.wait_for("Stopped")
        assert shell.seen.rfind(b"\x1b[?1049l") > shell.seen.rfind(b"\x1b[?1049h"), "the shell has its screen"
        program = next(process for process in Path("/proc").iterdir() if is_it(process, str(over)))
        state = (program / "stat").read_text().rsplit(")", 1)[1].split()[0]
        assert state == "T", "Ctrl-Z stops the program too"
        shell.screen.reset()
        shell.press("fg\r")
        shell.wait_for(BIG)
        over.touch()
        # The line was ended by Ctrl-Z; `fg` has its status.
        shell.wait_for("interrupts: 0")
        shell.press("echo status $?\r")
        shell.wait_for("status 7")
    finally:
        over.touch()
        shell.close()
    assert errors.read_text() == "to stderr\n", "a stream that is no terminal stays the program's own"


def is_it(process: Path, argument: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # The witness of a run has the command line of its program.
    is_ours = b"--live" in words or words[0].endswith(b"signal-witness")
    return not is_ours and argument.encode() in words


def test_without_a_terminal(tmp_path: Path) -> None:
    command = [
        *STORMLOG,
        "run",
        "--live",
        "--dir",
        str(tmp_path / "runs"),
        "--",
        "touch",
        str(tmp_path / "ran"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: --live needs a terminal") and done.stderr.count("\n") == 1
    assert not (tmp_path / "ran").exists() and not (tmp_path / "runs").exists()
