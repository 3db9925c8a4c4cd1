"""What a snapshot of PyTorch's allocator says once tensors are known: use over time, whose each block is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stormlog.cuda_native_debug import _whole

# Frames that every module has say nothing about which one it is.
_WRAPPERS = frozenset({"_call_impl", "_wrapped_call_impl", "<module>"})
_MOST_FRAMES = 12
_UNNAMED = "Unnamed Tensor"


@dataclass(frozen=True)
class Block:
    """A block in use: whose it is, and where it was asked for."""

    address: int
    size: int
    name: str
    shape: str
    dtype: str
    pool: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class Segment:
    """A stretch of device memory and its blocks: size, whether in use, name."""

    address: int
    size: int
    kind: str
    blocks: tuple[tuple[int, bool, str], ...]


@dataclass(frozen=True)
class Attributed:
    """One device of a snapshot."""

    # Milliseconds since the first event, bytes in use after it, the name of what was allocated or "".
    timeline: tuple[tuple[float, int, str], ...]
    ooms_ms: tuple[float, ...]
    has_history: bool
    peak: int
    blocks: tuple[Block, ...]
    segments: tuple[Segment, ...]
    attributed: int

    @property
    def active(self) -> int:
        """Bytes in use at the end."""
        return sum(block.size for block in self.blocks)

    @property
    def reserved(self) -> int:
        """Bytes the allocator holds."""
        return sum(segment.size for segment in self.segments)


def attribute(snapshot: Any, tensor_index: Mapping[str, Any], device: int) -> Attributed:
    """Reads a snapshot; TypeError for what is none."""
    whole = _whole(snapshot)
    known = {
        int(entry["storage_ptr_int"]): entry for entry in tensor_index.get("attributed_storage_pointers", [])
    }
    traces = whole["device_traces"]
    trace = traces[device] if 0 <= device < len(traces) else []
    timeline, ooms = _replay(trace, known)
    blocks: list[Block] = []
    segments = [
        _segment(segment, known, blocks)
        for segment in whole["segments"]
        if segment.get("device", device) == device
    ]
    blocks.sort(key=lambda block: -block.size)
    return Attributed(
        timeline=tuple(timeline),
        ooms_ms=tuple(ooms),
        has_history=bool(trace),
        peak=max((held for _, held, _ in timeline), default=0),
        blocks=tuple(blocks),
        segments=tuple(segments),
        attributed=int(tensor_index.get("storage_pointer_count", 0)),
    )


def _replay(
    trace: Iterable[Mapping[str, Any]], known: Mapping[int, Mapping[str, Any]]
) -> tuple[list[tuple[float, int, str]], list[float]]:
    """Memory is given back when its free is complete, not when it is asked for."""
    timeline: list[tuple[float, int, str]] = []
    ooms: list[float] = []
    held, began_us = 0, None
    for event in trace:
        action, size = event.get("action"), int(event.get("size") or 0)
        at_us = int(event.get("time_us") or 0)
        began_us = at_us if began_us is None else began_us
        at_ms = (at_us - began_us) / 1000
        if action == "alloc":
            held += size
            entry = known.get(int(event.get("addr") or 0))
            timeline.append((at_ms, held, _name(entry, event.get("frames") or [])))
        elif action == "free_completed":
            # What was allocated before the recording began is freed in it too.
            held = max(held - size, 0)
            timeline.append((at_ms, held, ""))
        elif action == "oom":
            ooms.append(at_ms)
    return timeline, ooms


def _segment(
    segment: Mapping[str, Any], known: Mapping[int, Mapping[str, Any]], found: list[Block]
) -> Segment:
    base = int(segment.get("address") or 0)
    offset, parts = base, []
    for block in segment.get("blocks", []):
        size, is_used = int(block.get("size") or 0), block.get("state") == "active_allocated"
        frames: list[Any] = block.get("frames") or next(
            (entry.get("frames") for entry in block.get("history") or [] if entry.get("frames")), []
        )
        address, entry = _owner(block, offset, known)
        name = _name(entry, frames) if is_used else ""
        parts.append((size, is_used, name))
        offset += size
        if is_used:
            tensor: Mapping[str, Any] = next(iter((entry or {}).get("tensors") or []), {})
            shape, dtype = tensor.get("shape") or "", str(tensor.get("dtype", ""))
            pool = str(segment.get("segment_type", "unknown"))
            shown = tuple(map(_frame, frames[:_MOST_FRAMES]))
            found.append(Block(address, size, name, str(shape), dtype, pool, shown))
    kind = str(segment.get("segment_type", "large"))
    return Segment(base, int(segment.get("total_size") or 0), kind, tuple(parts))


def _owner(
    block: Mapping[str, Any], offset: int, known: Mapping[int, Mapping[str, Any]]
) -> tuple[int, Mapping[str, Any] | None]:
    """Snapshots of different ages say a block's address in different places."""
    history = [entry.get("addr") for entry in reversed(block.get("history") or [])]
    places = [int(place) for place in (block.get("address"), *history, offset) if place]
    owned = next((place for place in places if place in known), None)
    return (places[0] if places else 0, None) if owned is None else (owned, known[owned])


def _name(entry: Mapping[str, Any] | None, frames: Iterable[Mapping[str, Any]]) -> str:
    """The tensor's name, or what the stack makes of it."""
    if entry is not None:
        names = entry.get("names") or []
        return str(names[0]) if names and names[0] else "<unnamed>"
    for frame in frames:
        function = str(frame.get("name", "unknown"))
        if function in _WRAPPERS:
            continue
        file = str(frame.get("filename", "")).rpartition("/")[2].removesuffix(".py")
        return f"Activation ({file.capitalize() if function == 'forward' and file else function.lstrip('_')})"
    return _UNNAMED


def _frame(frame: Mapping[str, Any]) -> str:
    return f"{frame.get('name', '')} ({frame.get('filename', '')}:{frame.get('line', 0)})"
