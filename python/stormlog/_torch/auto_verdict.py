"""Why a CUDA request failed, told from the allocator's state: what could have served it, and what did not.

Private and pure. The command line says it in more detail from the same snapshot; this is what stands in the
bundle even where nobody reads the snapshot.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

# Requests up to this size live in pools of their own.
_SMALL = 1 << 20
_SMALLER = "a smaller batch or activation checkpointing; what holds most is named in this bundle"


def binary_size(size: float) -> str:
    """`1.25 GiB`, as PyTorch's own messages have it."""
    if size < 1024:
        return f"{size:.0f} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    step = min((int(size).bit_length() - 1) // 10, len(units))
    return f"{size / 1024**step:.2f} {units[step - 1]}"


class Usable(NamedTuple):
    """The request, and the free blocks it could have used: same pool, same stream, same size class."""

    request: int | None
    largest: int
    free: int
    in_private_pools: int
    on_other_streams: int
    pending: int


class _Failed(Protocol):
    @property
    def device(self) -> int: ...
    @property
    def segment_bytes(self) -> int | None: ...
    @property
    def allowed_bytes(self) -> int | None: ...
    @property
    def free_bytes(self) -> int | None: ...
    @property
    def exception(self) -> tuple[str, str, str]: ...
    @property
    def step(self) -> int | None: ...
    @property
    def phase(self) -> str | None: ...


def usable_blocks(snapshot: dict[str, Any], device: int, segment_bytes: int | None) -> Usable:
    """What a snapshot taken at the error has for the request; its true size and stream are in the trace."""
    traces = snapshot.get("device_traces") or []
    trace = traces[device] if device < len(traces) else []
    failed: dict[str, Any] = next((entry for entry in reversed(trace) if entry.get("action") == "oom"), {})
    request = failed.get("size") or segment_bytes
    stream = failed.get("stream", 0)
    kind = "small" if request is not None and request <= _SMALL else "large"
    largest = free = walled = elsewhere = pending = 0
    for segment in snapshot.get("segments", []):
        if segment.get("device", device) != device:
            continue
        is_private = tuple(segment.get("segment_pool_id") or (0, 0)) != (0, 0)
        for block in segment.get("blocks", []):
            size = int(block.get("size") or 0)
            if str(block.get("state", "")).startswith(("active_pending", "active_awaiting")):
                pending += size
            elif block.get("state") != "inactive":
                continue
            elif is_private:
                walled += size
            elif segment.get("stream", 0) != stream:
                elsewhere += size
            elif segment.get("segment_type", kind) == kind:
                free, largest = free + size, max(largest, size)
    return Usable(request, largest, free, walled, elsewhere, pending)


def progress(step: int | None, phase: str | None) -> str:
    """` at step 1,204 in backward`; nothing where nothing is known."""
    return (f" at step {step:,}" if step else "") + (f" in {phase}" if phase else "")


def verdict(
    failure: _Failed, usable: Usable, categories: dict[str, Any], hidden: dict[str, Any]
) -> tuple[str, list[str]]:
    """One sentence, and what to try."""
    start = f"CUDA out of memory{progress(failure.step, failure.phase)} on GPU {failure.device}"
    request = usable.request
    if request is None:
        said = (failure.exception[2] or failure.exception[0]).splitlines()[0]
        if failure.exception[0] == "OutOfMemoryError":
            return f"{start}: {said.removeprefix('CUDA out of memory. ')}", [_SMALLER]
        return f"{start}, outside PyTorch's allocator: {said}", [
            "leave the libraries room: torch.cuda.set_per_process_memory_fraction(0.95), or a smaller batch"
        ]
    asked = f"{start}: {binary_size(request)} asked"
    settings = categories.get("allocator_settings") or {}
    is_expandable = bool(settings.get("expandable_segments"))
    allocated = categories.get("allocated_bytes")
    others = hidden.get("other_processes_bytes") or 0
    if usable.largest < request <= usable.free:
        what = (
            f"fragmentation: {binary_size(usable.free)} is free in the allocator, but the largest block "
            f"this request may use is {binary_size(usable.largest)}"
        )
        tries = ["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"] if not is_expandable else []
        return f"{asked}; {what}", tries or ["allocate what lives long first, and keep shapes steady"]
    if usable.in_private_pools >= request:
        size = binary_size(usable.in_private_pools)
        return f"{asked}; {size} is free, but only for captured graphs and private pools", [
            "share one pool between graphs, or reset those no longer used"
        ]
    if usable.on_other_streams + usable.pending >= request:
        size = binary_size(usable.on_other_streams + usable.pending)
        return f"{asked}; {size} is free only on other streams, or not given back by them yet", [
            "wait for the other streams, or use fewer"
        ]
    free = failure.free_bytes
    has_room = free is not None and free >= request
    if others >= request and others > (allocated or 0) // 10 and not has_room:
        return f"{asked}; other processes hold {binary_size(others)} of the device", [
            "find them with nvidia-smi; they may be left over"
        ]
    held = "" if allocated is None else f" {binary_size(allocated)} is in use"
    limit = "" if failure.allowed_bytes is None else f" of {binary_size(failure.allowed_bytes)} allowed"
    if has_room and limit:
        # Its own limit is in the way, whoever else is on the device.
        return f"{asked}; it is full:{held}{limit}, though {binary_size(free or 0)} of the device is free", [
            "a higher torch.cuda.set_per_process_memory_fraction, if the device is yours",
            _SMALLER,
        ]
    return f"{asked}; it is full:{held}{limit}", [_SMALLER]
