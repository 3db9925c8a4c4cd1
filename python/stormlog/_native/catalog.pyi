# What is found at a path: sources, runs, sessions: the submodule `stormlog._native.catalog`.
import os
from pathlib import Path

__all__ = [
    "find_sources",
    "is_session_dead",
]

def find_sources(path: str | os.PathLike[str]) -> tuple[list[tuple[str, Path]], list[str]]: ...
def is_session_dead(path: str | os.PathLike[str], pid: int, host: str, started_at_ns: int) -> bool: ...
