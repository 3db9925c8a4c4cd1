"""The views of findings, crashes and actions of `stormlog tui`, on a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyte")
from places import GOLDEN
from pseudo_terminal import Terminal

STORMLOG = [sys.executable, "-m", "stormlog"]
BUNDLES = GOLDEN / "peer-0.4.3" / "oom"


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []
    # Files are written where the screen was opened, and the user's settings are not the test's.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def make(*words: str, **options: Any) -> Terminal:
        opened.append(Terminal([*STORMLOG, "tui", *words], **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def run_command(screen: Terminal, command: str) -> None:
    """Runs a command by the last action of the menu."""
    screen.press("7")
    screen.wait_for("Any command")
    screen.press("G")
    screen.wait_for("without a shell")
    screen.press("e" + "\x7f" * 200 + command + "\r\r")


def test_crash_page_is_that_of_oom_show_and_is_exported(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    shown = subprocess.run(
        [*STORMLOG, "oom", "show", str(BUNDLES)], check=True, capture_output=True, text=True
    ).stdout
    screen = terminal(str(BUNDLES), columns=250, lines=60)
    screen.press("6")
    screen.wait_for("1 crash")
    screen.press("\r")
    text = screen.wait_for("  session  ")
    page = [line.rstrip() for line in text.splitlines()[2:-1]]
    assert page[: len(shown.splitlines())] == shown.splitlines()
    screen.press("e")
    screen.wait_for("$ stormlog oom export")
    screen.press("\r")
    screen.wait_for("exited 0")
    (written,) = tmp_path.glob("oom_dump_*-bundle.json")
    before = written.read_bytes()
    screen.press("\r")
    screen.wait_for("already there")
    assert written.read_bytes() == before
    screen.press("q")
    assert screen.leave() == 0


def test_signal_is_sent_to_the_named_process_after_yes(terminal: Callable[..., Terminal]) -> None:
    victim = subprocess.Popen(["sleep", "600"])
    screen = terminal(str(BUNDLES))
    screen.press("7")
    screen.wait_for("Any command")
    screen.press("Gk")
    screen.wait_for("Send a signal")
    screen.press(f"e{victim.pid}\r")
    screen.wait_for(f"kill -TERM {victim.pid}")
    screen.press("\r")
    asked = screen.wait_for("Send SIGTERM to process")
    assert "sleep 600" in asked and "user" in asked
    screen.press("n")
    screen.wait_for(lambda text: "Send SIGTERM" not in text)
    assert victim.poll() is None
    screen.press("\r")
    screen.wait_for("Send SIGTERM to process")
    screen.press("y")
    assert victim.wait(60) == -signal.SIGTERM
    screen.wait_for(f"SIGTERM sent to process {victim.pid}")
    # The number may be another process's by now.
    screen.press("\r")
    screen.wait_for("there is no process")
    screen.press("xq")
    assert screen.leave() == 0


def test_job_is_shown_and_continues_when_the_screen_is_left(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(str(BUNDLES), columns=160)
    run_command(screen, "stormlog --version")
    screen.wait_for("exited 0")
    run_command(screen, "sh -c 'echo job=$$=; exec sleep 600'")
    number = re.compile(r"job=(\d+)=")
    found = number.search(screen.wait_for(lambda text: number.search(text) is not None))
    assert found is not None
    pid = int(found[1])
    screen.press("q")
    assert screen.leave() == 0
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)


def test_findings_of_a_run_are_those_of_analyze(terminal: Callable[..., Terminal]) -> None:
    recorded = GOLDEN.parent / "corpus" / "recordings" / "leak_after_imports"
    screen = terminal(str(recorded), columns=200, lines=50)
    screen.press("5")
    listed = screen.wait_for("warning ")
    assert "leak" in listed
    screen.press("\r")
    page = screen.wait_for("LEAK  confidence")
    analyzed = subprocess.run(
        [*STORMLOG, "analyze", str(recorded)], check=False, capture_output=True, text=True
    ).stdout
    (title,) = (line for line in page.splitlines() if line.startswith("  host memory grows"))
    assert title.strip() in analyzed
    screen.press("q")
    assert screen.leave() == 0
