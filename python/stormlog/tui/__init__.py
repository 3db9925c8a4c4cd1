"""The terminal UI from Python, and the parts of 0.4.3's `stormlog.tui` that need no terminal.

The screen itself is the native command `stormlog tui`. Importing this package must never import a framework.
"""

from __future__ import annotations

import subprocess
import sys

from stormlog import _entry

__all__ = ["run_app"]


def run_app(argv: list[str] | None = None) -> None:
    """Opens the terminal UI and returns when it is closed; `query …` answers a query instead, as in 0.4.3.

    Without arguments those of the process are taken. SystemExit carries the status of a command that failed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_query = arguments[:1] == ["query"]
    program = _entry.command()
    command = [sys.executable, "-m", "stormlog"] if program is None else [program]
    done = subprocess.run([*command, *([] if is_query else ["tui"]), *arguments], check=False)
    if is_query or done.returncode:
        # A child that a signal ended has a negative number here; the shell's number is the one that is known.
        raise SystemExit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
