"""What tests of heap recordings share: figures of captures, and lines of the programs that were recorded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from places import PROGRAMS
from run_command import STORMLOG

LIMIT = 5_000_000


def stats(capture: Path) -> Any:
    done = subprocess.run([*STORMLOG, "stats", str(capture), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def line_of(name: str, text: str) -> int:
    lines = (PROGRAMS / name).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def live_files(run: Path) -> list[Path]:
    return list(run.rglob("*.live"))


def used(run: Path) -> int:
    """Bytes on disk of the largest capture, its finished and its live file together."""
    captures: dict[str, int] = {}
    for path in run.rglob("*.bin*"):
        try:
            blocks = path.stat().st_blocks
        except FileNotFoundError:
            continue  # renamed or removed between the listing and now
        name = path.name.removesuffix(".live")
        captures[name] = captures.get(name, 0) + blocks * 512
    return max(captures.values(), default=0)
