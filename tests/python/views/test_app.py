"""The terminal UI on a terminal: seven views of real runs, by keys, mouse and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pseudo_terminal import Terminal

COMMAND = [sys.executable, "-m", "stormlog"]
# Ends with SIGKILL while it holds 48 MiB.
DIES = """
import os, signal, time
kept = []
def collect():
    kept.append(bytearray(8 << 20))
for _ in range(6):
    collect()
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
LIVES = """
import pathlib, sys, time
held = bytearray(64 << 20)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J.py"
TABS = ("Overview", "Process", "Ranks", "Frameworks", "Findings", "Crashes", "Actions")

Opened = Callable[..., Terminal]


def record(folder: Path, name: str, program: str, *words: str) -> list[str]:
    script = folder / name
    script.write_text(program)
    runs = str(folder / "stormlog-runs")
    return [
        *COMMAND,
        "run",
        "--quiet",
        "--heap",
        "--interval",
        "0.05",
        "--dir",
        runs,
        "--",
        sys.executable,
        str(script),
        *words,
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two runs that died, one of them with a name that is a command to a terminal."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("dies.py", HOSTILE):
        done = subprocess.run(record(folder, name, DIES), capture_output=True)
        assert done.returncode in (-signal.SIGKILL, 137), done
    return folder


@pytest.fixture
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Opens the UI in that directory."""
    monkeypatch.chdir(folder)
    terminals: list[Terminal] = []

    def open_(*words: str, columns: int = 120, lines: int = 40, **env: str) -> Terminal:
        settings = {"XDG_CONFIG_HOME": str(folder / "no-settings"), "LC_ALL": "C.UTF-8", **env}
        terminals.append(Terminal([*COMMAND, *words], columns, lines, **settings))
        return terminals[-1]

    yield open_
    for terminal in terminals:
        terminal.close()


def first_line(text: str) -> str:
    return text.splitlines()[0]


def test_bare_command_opens_the_overview_with_the_runs_of_the_directory(opened: Opened) -> None:
    terminal = opened()
    text = terminal.wait_for("dies.py")
    assert all(f" {number} {word}" in first_line(text) for number, word in enumerate(TABS, 1))
    assert "KILLED" in text.upper()
    terminal.press("q")
    assert terminal.leave() == 0


def test_every_view_has_a_key_and_a_click_and_its_help(opened: Opened) -> None:
    terminal = opened("tui")
    terminal.wait_for("dies.py")
    for number, word in enumerate(TABS, 1):
        terminal.press(str(number))
        terminal.press("?")
        terminal.wait_for(f"keys of {word}")
        terminal.press(" ")
        terminal.wait_for(lambda text: "keys of" not in text)
    column = first_line(terminal.text()).index("3 Ranks") + 1
    terminal.press(f"\x1b[<0;{column + 1};1M\x1b[<0;{column + 1};1m?")
    terminal.wait_for("keys of Ranks")
    terminal.press("x\t?")
    terminal.wait_for("keys of Frameworks")
    terminal.press("xq")
    assert terminal.leave() == 0


def test_enter_opens_a_dead_run_and_escape_goes_back(opened: Opened) -> None:
    terminal = opened("tui")
    terminal.wait_for("dies.py")
    terminal.press("/dies\r\r")
    text = terminal.wait_for("dies.py:5")
    assert "48.00 MiB" in text
    terminal.press("\x1b")
    terminal.wait_for("PROGRAM")
    terminal.press("q")
    assert terminal.leave() == 0


def test_a_path_opens_in_its_view(opened: Opened, folder: Path) -> None:
    run = next(path for path in (folder / "stormlog-runs").iterdir() if "dies" in path.name)
    terminal = opened("tui", str(run))
    terminal.wait_for("dies.py:5")
    bundle = next(run.rglob("oom_dump_*"))
    other = opened("tui", str(bundle))
    other.wait_for("dies.py (pid")
    for each in (terminal, other):
        each.press("q")
        assert each.leave() == 0


def test_crash_opens_the_page_of_oom_show(opened: Opened, folder: Path) -> None:
    bundle = next(folder.glob("stormlog-runs/*dies*/*/oom_dump_*"))
    page = subprocess.run([*COMMAND, "oom", "show", str(bundle)], capture_output=True, text=True)
    assert page.returncode == 0, page.stderr
    lines = [line for line in page.stdout.splitlines() if line and len(line) < 100][:8]
    terminal = opened("tui", "--view", "crashes", lines=60)
    terminal.wait_for("dies.py")
    terminal.press("/dies\r\r")
    terminal.wait_for(lambda text: all(line in text for line in lines))
    terminal.press("q")
    assert terminal.leave() == 0


def test_findings_are_those_of_analyze(opened: Opened, folder: Path) -> None:
    run = next(folder.glob("stormlog-runs/*dies*"))
    found = subprocess.run([*COMMAND, "analyze", "--json", str(run)], capture_output=True, text=True)
    findings = json.loads(found.stdout)["findings"]
    titles = [finding["title"] for finding in findings if finding["severity"] != "info"]
    assert titles
    terminal = opened("tui", "--view", "findings", str(run), columns=300)
    terminal.wait_for(lambda text: all(title[:40] in text for title in titles))
    terminal.press("q")
    assert terminal.leave() == 0


def test_living_run_is_shown_until_it_is_killed(opened: Opened, folder: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    living = subprocess.Popen(record(folder, "lives.py", LIVES, str(ready)))
    try:
        while not ready.exists():
            assert living.poll() is None
            time.sleep(0.02)
        terminal = opened("tui")
        terminal.wait_for("lives.py")
        terminal.press("/lives\r\r")
        terminal.wait_for("lives.py:3")
        subprocess.run(["pkill", "-KILL", "-f", str(folder / "lives.py") + " " + str(ready)], check=False)
        living.wait(timeout=60)
        terminal.wait_for("SIGKILL")
        terminal.press("q")
        assert terminal.leave() == 0
    finally:
        living.kill()
        living.wait()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (300, 60), (45, 9)])
def test_every_size_has_every_view(opened: Opened, columns: int, lines: int) -> None:
    terminal = opened("tui")
    terminal.wait_for("dies.py")
    terminal.resize(columns, lines)
    for number, word in enumerate(TABS, 1):
        terminal.press(str(number))
        terminal.wait_for(lambda text, number=number, word=word: f" {number} {word} " in first_line(text))  # type: ignore[misc]
    terminal.press("q")
    assert terminal.leave() == 0


def test_untrusted_names_move_nothing(opened: Opened) -> None:
    terminal = opened("tui")
    terminal.wait_for("red")
    for number in range(1, 8):
        terminal.press(str(number))
        terminal.wait_for(lambda text, number=number: f" {number} {TABS[number - 1]}" in first_line(text))  # type: ignore[misc]
    terminal.press("q")
    assert terminal.leave() == 0
    assert terminal.screen.title != "owned" and b"\x1b]0;" not in terminal.seen


def test_ascii_and_no_colour_are_kept(opened: Opened) -> None:
    terminal = opened("tui", LC_ALL="C", NO_COLOR="1")
    terminal.wait_for("dies.py")
    terminal.press("2q")
    assert terminal.leave() == 0
    assert terminal.seen.isascii()
    colours = [colour for colour in (b"\x1b[38;5", b"\x1b[31m", b"\x1b[36m") if colour in terminal.seen]
    assert colours == []


def test_settings_choose_the_view_and_wrong_ones_are_named(opened: Opened, tmp_path: Path) -> None:
    settings = tmp_path / "stormlog" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('[tui]\nview = "actions"\nmouse = false\n')
    terminal = opened("tui", XDG_CONFIG_HOME=str(tmp_path))
    terminal.press("?")
    terminal.wait_for("keys of Actions")
    terminal.press("xq")
    assert terminal.leave() == 0
    assert b"\x1b[?1000h" not in terminal.seen, "the mouse is the terminal's"
    settings.write_text("[tui]\nmous = false\n")
    wrong = opened("tui", XDG_CONFIG_HOME=str(tmp_path))
    # The path before it may be long enough for the terminal to break the line anywhere.
    wrong.wait_for(lambda text: "line 2" in text.replace("\n", ""))
    assert wrong.process.wait(timeout=60) != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(opened: Opened, number: int) -> None:
    terminal = opened("tui")
    terminal.wait_for("dies.py")
    os.kill(terminal.process.pid, number)
    assert terminal.leave() in (-number, 128 + number)
    assert terminal.seen.rfind(b"\x1b[?1000l") > terminal.seen.rfind(b"\x1b[?1000h"), (
        "clicks are the shell's again"
    )


def test_without_a_terminal_the_help_is_printed(folder: Path) -> None:
    bare = subprocess.run(COMMAND, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert bare.returncode == 0 and "Usage: stormlog" in bare.stdout + bare.stderr
    named = subprocess.run(
        [*COMMAND, "tui", str(folder)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert named.returncode != 0 and "terminal" in named.stderr
