"""A program under `stormlog run` that gets signals."""

from __future__ import annotations

from pathlib import Path

from native import STORMLOG


def run(directory: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    return [STORMLOG, "run", "--quiet", "--dir", str(directory), *options, "--", *words]
