# Out-of-memory exceptions and their bundles: the submodule `stormlog._native.oom`.
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "classify_exception",
    "prune_bundles",
]

def classify_exception(
    facts: tuple[str, str, Sequence[str], str, int | None],
) -> tuple[bool, str | None, str | None]: ...
def prune_bundles(
    root: str | os.PathLike[str], keep: str | os.PathLike[str], max_dumps: int, max_total_mb: int
) -> list[Path]: ...
