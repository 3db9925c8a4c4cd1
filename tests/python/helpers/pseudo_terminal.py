"""A command on a pseudo-terminal of its own, seen through a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable

import pyte

# Long enough for a loaded machine; what is waited for comes at once on any other.
PATIENCE = 60.0


class Terminal:
    """A command on a terminal of its own, and what its screen shows."""

    def __init__(self, command: list[str], columns: int = 80, lines: int = 24, **env: str) -> None:
        self.ours, self.theirs = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.seen = b""
        self._size(columns, lines)
        self.before = termios.tcgetattr(self.theirs)
        environment = {
            name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")
        }
        self.process = subprocess.Popen(
            command,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            env={**environment, "TERM": "xterm-256color", **env},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        self._size(columns, lines)

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def read(self, seconds: float) -> bool:
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        data = os.read(self.ours, 65536)
        self.seen += data
        self.stream.feed(data)
        return True

    def wait_for(self, what: str | Callable[[str], bool]) -> str:
        """Reads until the screen shows it."""
        shown = what if callable(what) else lambda text: what in text
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if shown(self.text()):
                return self.text()
            self.read(0.1)
        raise AssertionError(f"waited for {what!r} in vain:\n{self.text()}")

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def leave(self) -> int:
        """Waits for the command to end; checks that the terminal is as it was."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        while self.read(0.1):
            pass
        assert self.process.returncode is not None, self.text()
        self.check_given_back()
        return self.process.returncode

    def check_given_back(self) -> None:
        assert termios.tcgetattr(self.theirs) == self.before
        taken, left = self.seen.rfind(b"\x1b[?1049h"), self.seen.rfind(b"\x1b[?1049l")
        assert 0 <= taken < left
        assert self.seen.rfind(b"\x1b[?25h") > self.seen.rfind(b"\x1b[?25l")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)
