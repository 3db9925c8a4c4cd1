"""PyTorch allocator snapshots: what held the memory, why a request failed, what would have helped.

    snapshot = stormlog.torch_snapshot.load("snapshot.pickle")
    print(snapshot.report().verdict.sentence)
    best = snapshot.search(limit="24GiB").best

Reads what ``torch.cuda.memory._dump_snapshot()`` wrote: pickle or JSON, plain, gzip or zstd. Nothing in the
file is executed, whatever it says; ``torch`` is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from stormlog import _native
from stormlog._torch.answers import (
    Advice,
    CategoryDiff,
    CategoryShare,
    Decomposition,
    Device,
    DeviceDiff,
    Diff,
    Growth,
    Holder,
    LimitBounds,
    Oom,
    Pool,
    Prediction,
    Recorded,
    Replay,
    Report,
    SelfMatch,
    Sides,
    StackDiff,
    Verdict,
    build,
)

__all__ = [
    "Advice",
    "CategoryDiff",
    "CategoryShare",
    "Decomposition",
    "Device",
    "DeviceDiff",
    "Diff",
    "Growth",
    "Holder",
    "LimitBounds",
    "Oom",
    "Pool",
    "Prediction",
    "Recorded",
    "Replay",
    "Report",
    "SelfMatch",
    "Sides",
    "Snapshot",
    "StackDiff",
    "Verdict",
    "load",
]

#: ``"max_split_size_mb:128,expandable_segments:True"``, or the same as a mapping.
Settings: TypeAlias = str | Mapping[str, Any]


def load(path: str | os.PathLike[str]) -> Snapshot:
    """Reads a snapshot. What is not a snapshot is a ``ValueError`` that says why."""
    return Snapshot(Path(path), _native.torch.load_torch_snapshot(path))


class Snapshot:
    """A snapshot that was read. It never changes; every answer is computed when it is asked for."""

    def __init__(self, path: Path, native: _native.torch.TorchSnapshot) -> None:
        """Use :func:`load`."""
        self.path = path
        self._native = native

    def __repr__(self) -> str:
        """Name and size."""
        return f"<Snapshot {str(self.path)!r}: {sum(self.event_counts)} events>"

    @property
    def event_counts(self) -> tuple[int, ...]:
        """The recorded events of each device."""
        return tuple(self._native.event_count(device) for device in range(self._native.device_count()))

    def report(self, *, top: int = 10, device_total: int | str | None = None, advise: bool = True) -> Report:
        """The page: peaks, decomposition, holders, categories, verdict, advice.

        ``device_total`` is the device's memory, which the file does not say; ``advise=False`` tries no
        other settings.
        """
        return build(Report, self._native.report(top, device_total, advise))

    def oom(self, *, device_total: int | str | None = None) -> Oom | None:
        """The request that failed, explained; ``None`` if none did."""
        return self.report(top=0, device_total=device_total, advise=False).oom

    def replay(self, *settings: Settings, limit: int | str | None = None, device: int = 0) -> Replay:
        """The recorded requests under each of ``settings``, with as much memory as ``limit`` says."""
        return self._replay(settings, limit, False, device)

    def search(self, *, limit: int | str | None = None, device: int = 0) -> Replay:
        """Every setting worth trying, the best first."""
        return self._replay((), limit, True, device)

    def diff(self, after: Snapshot, *, at: str | int = "peak", device: int | None = None) -> Diff:
        """What changed up to ``after``, on all devices or on one.

        ``at`` is the ``"peak"``, the ``"end"``, a number of events, or a span the program marked with
        ``record_function``: ``"forward"`` is the end of the last one, ``"start:forward@3"`` the start of
        the third.
        """
        return build(Diff, self._native.diff(after._native, str(at), device))

    def _replay(
        self, settings: Iterable[Settings], limit: int | str | None, search: bool, device: int
    ) -> Replay:
        texts = [text if isinstance(text, str) else _text(text) for text in settings]
        return build(Replay, self._native.replay(texts, limit, search, device))


def _text(settings: Mapping[str, Any]) -> str:
    return ",".join(f"{key}:{value}" for key, value in settings.items())
