"""A memory profile of JAX as stacks and values; the reader is Stormlog's own, no protobuf is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stormlog import _native

__all__ = ["parse_jax_memory_profile"]


def parse_jax_memory_profile(file_path: str) -> dict[str, Any]:
    """`samples`: the functions from the root to the leaf, and `values`: arrays and bytes."""
    if not Path(file_path).exists():
        raise FileNotFoundError(f"JAX memory profile not found: {file_path}")
    rows = _native.heap.heap_stacks(file_path, "peak")
    return {
        "samples": [
            {"stack": [frame.function for frame in reversed(row.stack)], "values": [row.count, row.own_bytes]}
            for row in rows
            if row.own_bytes
        ]
    }
