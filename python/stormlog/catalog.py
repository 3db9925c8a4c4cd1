"""What was recorded at a path: runs, and processes with everything that is known of each.

    from stormlog import catalog

    for run in catalog.runs():
        for process in run.processes:
            print(run.id, process.pid, process.program, process.end.state, process.captures)

A process (run, number, start time) joins the samples that were taken of it from outside (``stormlog run``),
those it took itself (a tracker, ``stormlog.auto``), its heap captures, snapshots of PyTorch's allocator,
bundles, the exceptions it reported and how it ended. ``stormlog sessions --json`` has the same.
"""

from __future__ import annotations

import os

from stormlog import _native
from stormlog._native.catalog import Process, ProcessEnd, ProcessSession, Run

__all__ = ["Process", "ProcessEnd", "ProcessSession", "Run", "processes", "runs"]


def runs(path: str | os.PathLike[str] | None = None) -> list[Run]:
    """The runs at a path, oldest first; without one, those of the directory that ``stormlog run`` uses.

    A run whose supervisor was killed is finished first where this user may write to it. Runs of another
    version are left out. ``FileNotFoundError`` where nothing is at the path.
    """
    return _native.catalog.find_runs(_default() if path is None else path)


def processes(path: str | os.PathLike[str] | None = None) -> list[Process]:
    """Every process at a path: those of runs first, then one for each session that is in no run."""
    return _native.catalog.find_processes(_default() if path is None else path)


def _default() -> str:
    return os.environ.get(_native.catalog.RUNS_VARIABLE) or _native.catalog.RUNS_DIRECTORY
