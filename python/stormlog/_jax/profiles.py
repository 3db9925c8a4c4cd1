"""Memory profiles of JAX as files: written whole, and read back as the lines that hold most.

A profile is what `jax.profiler.device_memory_profile` gives: gzip pprof, one moment, every live array with
the Python stack that made it. Every view of Stormlog opens it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._jax import runtime
from stormlog._jax.preallocation import Preallocation
from stormlog._tracking.failure import Holder

AT_PEAK, AT_END = _native.catalog.JAX_PEAK_PROFILE, _native.catalog.JAX_END_PROFILE
AT_OOM = _native.catalog.JAX_PROFILE
_HOLDERS = 8


def write(path: Path, jax_module: Any) -> int:
    """Write the profile of this moment; its bytes."""
    profile = runtime.memory_profile(jax_module)
    _native.files.replace_file(path, profile)
    return len(profile)


def add_to(snapshot: Path, notes: list[str]) -> None:
    """The profile of this moment into a snapshot on request, with the pool of each device as a note."""
    devices = runtime.started_devices()
    if not devices:
        return
    write(snapshot / AT_OOM, runtime.jax())
    notes.append(f"live arrays of JAX by line: stormlog stats {snapshot / AT_OOM}")
    for device in devices:
        stats = runtime.memory_stats(device)
        if stats is not None:
            notes.append(f"{device}: {Preallocation.of().sentence(stats)}")


def holders(profile: Path) -> list[Holder]:
    """The lines that hold most, the largest first, as `stormlog stats` has them."""
    rows = _native.heap.heap_stats(profile, None)["top_by_size"]
    return [
        Holder(
            f"{row['file']}:{row['line']} {row['function']}",
            int(row["bytes"]),
            f"{row['count']} array{'' if row['count'] == 1 else 's'}",
        )
        for row in rows[:_HOLDERS]
    ]
