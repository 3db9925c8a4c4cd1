"""What the environment says about recording by itself, and where the recordings go."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from stormlog import _native

DEFAULT_INTERVAL = 0.1
# Some ten steps of training. Each entry of a longer one costs more: it no longer fits into the cache.
DEFAULT_HISTORY = 20_000
# Without stacks an entry is small and cheap, and a replay wants many.
DEFAULT_SEGMENT_HISTORY = 100_000
_NO = frozenset({"0", "off", "false", "no"})
_YES = frozenset({"1", "on", "true", "yes"})


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to record. A variable that is not a number counts as not set."""

    run_directory: Path | None
    root: Path
    interval: float
    is_on: bool
    #: Entries of PyTorch's own history a device keeps; 0 is none.
    history_entries: int
    history_has_stacks: bool
    writes_bundles: bool
    follows_driver: bool
    records_heap: bool
    takes_requests: bool
    #: The signal that asks for a snapshot, where the user named one.
    snapshot_signal: int | None

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Settings:
        """As the environment has it."""
        run = env.get(_native.catalog.RUN_VARIABLE)
        interval = _number(env.get("STORMLOG_INTERVAL"), _interval_of(run))
        entries, has_stacks = _history(env.get("STORMLOG_TORCH_HISTORY", ""))
        return cls(
            run_directory=Path(run) if run else None,
            root=Path(env.get(_native.catalog.RUNS_VARIABLE) or _native.catalog.RUNS_DIRECTORY),
            interval=interval if interval > 0 else DEFAULT_INTERVAL,
            is_on=not is_off(env, "STORMLOG_TORCH"),
            history_entries=entries,
            history_has_stacks=has_stacks,
            writes_bundles=not is_off(env, "STORMLOG_TORCH_OOM"),
            follows_driver=env.get("STORMLOG_CUDA_DRIVER", "").lower() in _YES,
            records_heap=not is_off(env, "STORMLOG_AUTO_HEAP"),
            takes_requests=not is_off(env, "STORMLOG_REQUESTS"),
            snapshot_signal=_native.requests.signal_number(env.get("STORMLOG_SNAPSHOT_SIGNAL", "")),
        )

    def directory(self) -> Path:
        """The run's, or a new one named after the time and the program."""
        if self.run_directory is not None:
            return self.run_directory
        return _new_directory(self.root, os.getpid())


@functools.cache
def _new_directory(root: Path, _process: int) -> Path:
    """One for each process, whichever framework asks first."""
    stamp = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    script = getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0] or "python"
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(script).stem)[:40] or "python"
    return (root / f"{stamp}-{name}-{secrets.token_hex(2)}").absolute()


def is_off(env: Mapping[str, str], name: str) -> bool:
    """Whether a variable turns something off."""
    return env.get(name, "").lower() in _NO


def session_directory(run: Path, rank: int, device: int) -> Path:
    """Of one device in this process, beside what the supervisor records of it from outside."""
    return _native.catalog.session_directory(run, rank, device)


def _interval_of(run: str | None) -> float:
    """The interval of `stormlog run`."""
    interval_ms = _native.catalog.run_interval_ms(run) if run else None
    return DEFAULT_INTERVAL if interval_ms is None else interval_ms / 1000


def _history(text: str) -> tuple[int, bool]:
    """`off`, `segments` or `stacks`; a number is that many entries with stacks."""
    word = text.strip().lower()
    if word == "segments":
        return DEFAULT_SEGMENT_HISTORY, False
    if word == "stacks":
        return DEFAULT_HISTORY, True
    return max(int(_number(word, 0)), 0), True


def _number(text: str | None, otherwise: float) -> float:
    try:
        value = float(text) if text else otherwise
    except ValueError:
        return otherwise
    return value if abs(value) < float("inf") else otherwise
