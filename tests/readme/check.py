"""Runs the commands of a document and compares what they print with what it shows: check.py README.md.

Of every block marked ```console, lines that start with `$ ` are run, all in one new directory and in order.
Each must succeed, and the lines shown below it must be printed in their order, `...` standing for anything.
Commands that set up the checkout itself are left out: this test runs within one of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETS_UP = ("make ", "pip ", "cargo ", "git ")


class Command(NamedTuple):
    """A command line and what is shown of its output."""

    text: str
    shown: list[str]


def commands(document: str) -> Iterator[Command]:
    """The commands of a document."""
    for block in BLOCK.finditer(document):
        command = None
        for line in block[1].splitlines():
            if line.startswith("$ "):
                if command:
                    yield command
                command = Command(line[2:], [])
            elif command and line.startswith("> "):
                command = Command(f"{command.text}\n{line[2:]}", [])
            elif command:
                command.shown.append(line)
        if command:
            yield command


def pattern(line: str) -> re.Pattern[str]:
    """A shown line; its white space is that of a table, which depends on the contents."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("...")]
    return re.compile(r"\s*" + ".*".join(parts) + r"\s*")


def missing(shown: list[str], printed: str) -> str | None:
    """The first shown line that was not printed after those before it."""
    lines = iter(printed.splitlines())
    for line in shown:
        wanted = pattern(line)
        if line.strip() and not any(wanted.fullmatch(found) for found in lines):
            return line
    return None


def run(command: Command, directory: str) -> str | None:
    """What is wrong with a command."""
    # The package under test is the one beside this interpreter.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    printed = done.stdout + done.stderr
    if done.returncode:
        return f"exit code {done.returncode}\n{printed}"
    line = missing(command.shown, printed)
    return f"did not print {line!r}, but\n{printed}" if line is not None else None


def main(paths: list[str]) -> None:
    """Checks the documents."""
    passed = failed = 0
    for path in paths:
        with tempfile.TemporaryDirectory() as directory:
            for command in commands(Path(path).read_text(encoding="utf-8")):
                if command.text.startswith(SETS_UP):
                    continue
                wrong = run(command, directory)
                passed, failed = passed + (wrong is None), failed + (wrong is not None)
                if wrong:
                    sys.stdout.write(f"{path}: $ {command.text}\n{wrong}\n")
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    if failed or not passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
