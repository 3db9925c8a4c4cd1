"""The terminal UI in a real tmux: keys, mouse, resize, suspend, and what it watches or runs in vanishes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import components
import pytest

PATIENCE = 60.0
STORMLOG = f"{sys.executable} -m stormlog"
LIVES = """
import pathlib, sys, time
held = bytearray(64 << 20)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


class Tmux:
    """A session of one window with a shell in it."""

    def __init__(self, program: Path, env: dict[str, str], folder: Path, columns: int, lines: int) -> None:
        self.words = [str(program), "-S", str(folder / "socket"), "-f", "/dev/null"]
        self.env = env
        size = ["-x", str(columns), "-y", str(lines)]
        self.run("new-session", "-d", *size, "-c", str(folder), "env", "PS1=$ ", "sh")

    def run(self, *words: str) -> str:
        done = subprocess.run([*self.words, *words], env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def text(self) -> str:
        return self.run("capture-pane", "-p")

    def type(self, text: str) -> None:
        self.run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def wait_for(self, what: str | Callable[[str], bool]) -> str:
        shown = what if callable(what) else lambda text: what in text
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            text = self.text()
            if shown(text):
                return text
            time.sleep(0.05)
        raise AssertionError(f"waited for {what!r} in vain:\n{self.text()}")

    def close(self) -> None:
        subprocess.run([*self.words, "kill-server"], env=self.env, capture_output=True)


@pytest.fixture(scope="module")
def tmux() -> tuple[Path, dict[str, str]]:
    """tmux and the environment it starts in; unpacked from packages where it is not installed."""
    clean = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "TMUX", "PS1")}
    env = {**clean, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
    if (found := shutil.which("tmux")) is not None:
        return Path(found), env
    root = components.unpacked("bookworm", "tmux", "libevent-core-2.1-7", "libutempter0")
    libraries = next((root / "usr/lib").glob("*-linux-gnu"))
    return root / "usr/bin/tmux", {**env, "LD_LIBRARY_PATH": str(libraries)}


@pytest.fixture
def session(tmux: tuple[Path, dict[str, str]], tmp_path: Path) -> Iterator[Tmux]:
    session = Tmux(*tmux, tmp_path, 120, 40)
    session.wait_for("$")
    yield session
    session.close()


@pytest.fixture
def living(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run that holds 64 MiB until it is killed."""
    script, ready = tmp_path / "lives.py", tmp_path / "ready"
    script.write_text(LIVES)
    runs = str(tmp_path / "stormlog-runs")
    words = [
        "run",
        "--quiet",
        "--heap",
        "--interval",
        "0.1",
        "--dir",
        runs,
        "--",
        sys.executable,
        str(script),
        str(ready),
    ]
    run = subprocess.Popen([sys.executable, "-m", "stormlog", *words], start_new_session=True)
    while not ready.exists():
        assert run.poll() is None
        time.sleep(0.02)
    yield run
    # The supervisor passes it on.
    run.terminate()
    run.wait(timeout=60)


def uis() -> list[int]:
    """The processes of the UI that are there."""
    done = subprocess.run(["pgrep", "-f", "stormlog.* tui --view actions"], capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def test_keys_mouse_resize_suspend_and_a_killed_program(
    session: Tmux, living: subprocess.Popen[bytes]
) -> None:
    session.type(f"{STORMLOG} tui --view overview\n")
    session.wait_for("lives.py")
    session.type("/lives")
    session.press("Enter", "Enter")
    session.wait_for("lives.py:3")
    # A click on the tab of the ranks, as a terminal reports it.
    session.type("\x1b[<0;28;1M\x1b[<0;28;1m?")
    session.wait_for("keys of Ranks")
    session.press("x", "2")
    for columns, lines in ((80, 24), (300, 60), (120, 40)):
        session.run("resize-window", "-x", str(columns), "-y", str(lines))
        session.wait_for(
            lambda text, lines=lines: text.count("\n") == lines and "Process" in text.splitlines()[0]
        )  # type: ignore[misc]
    session.press("C-z")
    session.wait_for("Stopped")
    session.type("fg\n")
    session.wait_for("lives.py:3")
    children = subprocess.run(["pgrep", "-P", str(living.pid)], capture_output=True, text=True).stdout.split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    session.wait_for("SIGKILL")
    session.type("q")
    session.wait_for(lambda text: "Overview" not in text and text.rstrip().endswith("$"))
    session.type("echo still $((40 + 2))\n")
    text = session.wait_for("still 42")
    assert "Overview" not in text, "the screen of the shell is back"


def test_a_terminal_that_vanishes_ends_the_ui(session: Tmux, tmp_path: Path) -> None:
    session.type(f"{STORMLOG} tui --view actions\n")
    session.wait_for("Actions")
    mine = uis()
    assert mine
    session.close()
    end = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}").exists() for pid in mine):
        assert time.monotonic() < end, "it outlives its terminal"
        time.sleep(0.05)
