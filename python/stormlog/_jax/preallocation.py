"""How JAX takes GPU memory: three quarters of a device at the start, unless `XLA_PYTHON_CLIENT_*` differ.

Therefore the driver's number says nothing about the need of a JAX program; the allocator's counters do. What
they mean depends on the allocator:

- BFC (the default) takes its pool with the first allocation, counts it in `pool_bytes`, and never exceeds it.
- `cuda_async` fills CUDA's own pool when the backend starts and does not report it; the pool may grow beyond
  that size. JAX 0.11 counts from zero after the filling; a release that counted it has that size as its peak.
- `platform` has neither a pool nor counters; `vmm` and `address` take memory as it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from stormlog._native.text import binary_size

_DEFAULT_FRACTION = 0.75
# Exactly these: JAX takes every other text for yes.
_NO = frozenset({"false", "False", "0"})
_BFC, _CUDA_ASYNC = frozenset({"default", "bfc"}), "cuda_async"
_PREALLOCATE, _FRACTION = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION"
_ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"


class Preallocation(NamedTuple):
    """As the environment has it."""

    is_on: bool
    fraction: float
    allocator: str

    @classmethod
    def of(cls, env: Mapping[str, str] = os.environ) -> Preallocation:
        """Of this environment; the client reads it once, when the backend starts."""
        allocator = env.get(_ALLOCATOR, "default").strip().lower() or "default"
        text = env.get("XLA_CLIENT_MEM_FRACTION") or env.get(_FRACTION) or ""
        try:
            fraction = float(text) if text else _DEFAULT_FRACTION
        except ValueError:
            fraction = _DEFAULT_FRACTION
        is_asked = env.get(_PREALLOCATE, "true") not in _NO
        return cls(is_asked and (allocator in _BFC or allocator == _CUDA_ASYNC), fraction, allocator)

    def to_dict(self, stats: Mapping[str, int] | None) -> dict[str, Any]:
        """For a bundle and for the metadata of samples."""
        return {
            "preallocated": self.is_on,
            "memory_fraction": self.fraction,
            "allocator": self.allocator,
            "pool_bytes": None if stats is None else pool_bytes(stats, self),
            "limit_bytes": None if stats is None else limit_bytes(stats, self),
            "in_use_bytes": None if stats is None else stats.get("bytes_in_use"),
            "peak_bytes": None if stats is None else peak_bytes(stats, self),
        }

    def sentence(self, stats: Mapping[str, int]) -> str:
        """What of the device is a pool, and what of the pool is in use."""
        pool = pool_bytes(stats, self)
        used = binary_size(stats["bytes_in_use"])
        if pool == 0:
            return "JAX has reserved nothing of the device yet: the pool is taken with the first allocation"
        if self.is_on and pool:
            return (
                f"JAX reserved {binary_size(pool)} at the start ({_PREALLOCATE}, {_FRACTION}); "
                f"{used} of it is in use"
            )
        if pool:
            return f"JAX holds {binary_size(pool)} of the device; {used} of it is in use"
        return f"{used} of the device is in use by JAX"


def pool_bytes(stats: Mapping[str, int], preallocation: Preallocation) -> int | None:
    """What the allocator has taken from the driver; None where it cannot be known."""
    pool = stats.get("pool_bytes")
    if pool is None:
        pool = stats.get("bytes_reserved") or None
    if pool is not None or not preallocation.is_on:
        return pool
    limit = stats.get("bytes_limit")
    if preallocation.allocator == _CUDA_ASYNC:
        return None if limit is None else max(limit, stats.get("bytes_in_use", 0))
    # Releases that do not count the pool: the whole of it is taken with the first allocation.
    has_begun = any(stats.get(name) for name in ("bytes_in_use", "peak_bytes_in_use", "num_allocs"))
    return limit if has_begun else 0


def limit_bytes(stats: Mapping[str, int], preallocation: Preallocation) -> int | None:
    """At which an allocation fails; None where only the device itself is a limit."""
    return None if preallocation.allocator == _CUDA_ASYNC else stats.get("bytes_limit")


def peak_bytes(stats: Mapping[str, int], preallocation: Preallocation) -> int | None:
    """The most that was in use; None where the allocator's peak is the preallocation itself."""
    peak = stats.get("peak_bytes_in_use")
    is_pool = preallocation.allocator == _CUDA_ASYNC and preallocation.is_on
    return None if is_pool and peak == stats.get("bytes_limit") else peak
