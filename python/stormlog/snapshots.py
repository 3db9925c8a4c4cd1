"""The memory of this process now, on request: what it is for, and which lines hold it.

    found = stormlog.snapshot()
    print(found)                     # the answer of `stormlog snapshot --pid`
    found.components[0].component    # "kv_cache"

A server that is recorded (`stormlog run`, `import stormlog.auto`, `STORMLOG=1`) also answers
`stormlog snapshot --pid PID` and `stormlog trigger`, and after :func:`snapshot_on` a signal.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from signal import Signals
from typing import Any, TypeVar

from stormlog import _native
from stormlog._requests import listener
from stormlog._requests.steps import CLOCK
from stormlog._requests.take import take

__all__ = ["Snapshot", "component", "snapshot", "snapshot_on", "step"]

#: `path`, `total`, `memories`, `components`, `holders`, `notes`; as text the answer in a few lines.
Snapshot = _native.requests.Snapshot

_T = TypeVar("_T")
# The handler of a snapshot signal does nothing with it.
_NO_DESCRIPTOR = -1


def snapshot(path: str | os.PathLike[str] | None = None) -> Snapshot:
    """Take a snapshot of this process and write it to a directory.

    `path` is a new directory; without it, one below the run's where this process is recorded, else
    `stormlog-snapshot-PID-…` here. Lines are known where the heap is recorded (`stormlog run`,
    `stormlog.auto`, `stormlog.heap.start`), components where PyTorch is used.
    """
    number = secrets.token_hex(8)
    run = run_directory()
    if path is not None:
        directory = Path(path)
        if directory.exists() and any(directory.iterdir()):
            raise FileExistsError(f"{directory} is not empty; name a new directory")
        _native.files.create_directory(directory)
    elif run is not None:
        directory = _native.requests.new_snapshot_directory(run, number)
    else:
        directory = Path(f"stormlog-snapshot-{os.getpid()}-{number[:4]}").absolute()
        _native.files.create_directory(directory)
    return take(directory, request=number, asked_by="stormlog.snapshot")


def component(name: str, thing: _T) -> _T:
    """Name what the memory of a tensor, a module, or a list or dictionary of these is for; returns it.

    Snapshots count it under this name: ``weights``, ``kv_cache``, ``activations``, ``workspaces``, or a word
    of yours. Nothing is kept alive by it.
    """
    from stormlog._torch import component_names

    component_names.name(name, thing)
    return thing


def snapshot_on(signal: int | str) -> None:
    """Have a signal ask for a snapshot: SIGUSR1, SIGUSR2 or a real-time signal, by number or name.

    Only where the signal has its default action: a handler of the program's is never replaced, and where one
    is installed later, the signal is the program's again. Must be called in every process that is to answer.
    """
    number = _signal_number(signal) if isinstance(signal, str) else int(signal)
    problem: str | None = "unfit"
    if number is not None:
        # Tried without a listener first: one that is started for nothing leaves a thread and a directory.
        has_listener = listener.own() is not None
        problem = None if has_listener else _native.requests.install_notice(number, _NO_DESCRIPTOR)
        problem = problem or _listener().use_signal(number)
    if problem == "taken":
        raise ValueError(f"signal {number} is handled or ignored by this program; choose another one")
    if problem is not None:
        raise ValueError(_why_unfit(signal, number))


def _signal_number(name: str) -> int | None:
    """The number of any signal: the native rule knows the names of those that can be used."""
    bare = name.strip().upper().removeprefix("SIG")
    return _native.requests.signal_number(name) or Signals.__members__.get(f"SIG{bare}")


def _why_unfit(signal: int | str, number: int | None) -> str:
    try:
        name = Signals(number or 0).name
    except ValueError:
        return f"{signal!r} is not a signal; for example SIGUSR2"
    return (
        f"{name} cannot be used: the system or Python uses it; choose SIGUSR1, SIGUSR2 or a real-time signal"
    )


def take_signal() -> None:
    """As `stormlog run --snapshot-signal` asks, when a process starts; a taken signal is not an error."""
    signal = _native.requests.signal_number(os.environ.get("STORMLOG_SNAPSHOT_SIGNAL", ""))
    if signal is not None and run_directory() is not None:
        # What became of it is in the file of the listener.
        _listener().use_signal(signal)


def step(number: int | None = None) -> None:
    """A step of the program has ended: for `stormlog trigger --at-step`.

    PyTorch's optimizers are counted without this; a program that calls it is counted by its calls alone.
    """
    CLOCK.report(number)
    if CLOCK.made is not None and listener.own() is None and run_directory() is not None:
        _listener()


def run_directory() -> Path | None:
    """Where this process is recorded; None where it is not."""
    run = os.environ.get(_native.catalog.RUN_VARIABLE)
    if run:
        return Path(run)
    auto: Any = sys.modules.get("stormlog._torch.auto")
    found: Path | None = None if auto is None else auto.STATE.directory
    return found


def _listener() -> listener.Listener:
    run = run_directory()
    if run is None:
        run = Path(f"stormlog-snapshot-{os.getpid()}").absolute()
        _native.files.create_directory(run)
    return listener.start(run)
