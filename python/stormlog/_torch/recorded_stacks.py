"""The stacks of this process's own heap recording, put into PyTorch's snapshots and beside its tensors.

Private. The recording knows where every block of a GPU was allocated, so PyTorch need not keep a history. A
snapshot is completed as PyTorch itself would have written it: frames of the live blocks, frames of the
history where one without stacks was kept, and the request that failed. What PyTorch recorded stays as it is.
"""

from __future__ import annotations

from typing import Any

from stormlog import _native

#: The key of a snapshot that says what of it is ours.
MARK = "stormlog"


def device_blocks(device: int, recent: int = 0) -> _native.heap.DeviceBlocks | None:
    """The blocks of a CUDA device by the recording of this process, with the last `recent` allocations.

    None where nothing is recorded, or nothing of this device.
    """
    try:
        return _native.heap.own_device_blocks(f"cuda:{device}", recent)
    except _native.heap.HeapError:  # a capture that was deleted or is damaged
        return None


def complete(
    snapshot: dict[str, Any], device: int, request: int | None, free: int | None, stack: tuple[str, ...]
) -> bool:
    """Put our stacks, and the failed request where there is none, into a snapshot taken just now.

    Whether its blocks have stacks of ours.
    """
    trace = _trace_of(snapshot, device)
    allocations = [entry for entry in trace if entry.get("action") == "alloc"]
    known = None
    if not any(entry.get("frames") for entry in allocations) and not _has_frames(snapshot, device):
        known = device_blocks(device, len(allocations))
    added = []
    if known is not None:
        frames = [[_frame(line.file, line.line, line.function) for line in lines] for lines in known.stacks]
        _complete_blocks(snapshot, device, known, frames)
        _complete_trace(allocations, known, frames)
        added.append("stacks")
        request = known.failed_bytes or request
    if request and not any(entry.get("action") == "oom" for entry in trace):
        lines = [_frame(*_parts(line)) for line in stack]
        event = {"action": "oom", "addr": 0, "size": request, "stream": 0, "frames": lines}
        trace.append({**event, "device_free": free} if free is not None else event)
        added.append("oom")
    if added:
        snapshot[MARK] = {"added": added}
    return known is not None


def stacks_by_address(device: int) -> dict[int, list[dict[str, Any]]]:
    """The frames of each live block of a device as PyTorch writes them; empty where nothing is recorded."""
    known = device_blocks(device)
    if known is None:
        return {}
    frames = [[_frame(line.file, line.line, line.function) for line in lines] for lines in known.stacks]
    return {block.address: frames[block.stack] for block in known.live}


def _complete_blocks(
    snapshot: dict[str, Any], device: int, known: _native.heap.DeviceBlocks, frames: list[list[Any]]
) -> None:
    live = {(block.address, block.size): block.stack for block in known.live}
    for segment in snapshot["segments"]:
        if segment.get("device", device) != device:
            continue
        address = int(segment.get("address") or 0)
        for block in segment.get("blocks", []):
            address = int(block.get("address") or address)
            size = int(block.get("size") or 0)
            found = live.get((address, size))
            if found is not None and block.get("state") == "active_allocated":
                block["frames"] = frames[found]
            address += size


def _complete_trace(
    allocations: list[dict[str, Any]], known: _native.heap.DeviceBlocks, frames: list[list[Any]]
) -> None:
    """Both end now and have every allocation in the same order, so the last ones are the same.

    Other threads may have allocated between the snapshot and our reading: those are left out first.
    """
    recent = known.recent
    if not recent or not allocations:
        return
    last = int(allocations[-1].get("addr") or 0)
    for end in range(len(recent), 0, -1):
        if recent[end - 1].address != last:
            continue
        pairs = list(zip(reversed(allocations), reversed(recent[:end]), strict=False))
        if all(int(entry.get("addr") or 0) == block.address for entry, block in pairs):
            for entry, block in pairs:
                entry["frames"] = frames[block.stack]
            return


def _trace_of(snapshot: dict[str, Any], device: int) -> list[dict[str, Any]]:
    traces = snapshot["device_traces"]
    while len(traces) <= device:
        traces.append([])
    trace: list[dict[str, Any]] = traces[device]
    return trace


def _has_frames(snapshot: dict[str, Any], device: int) -> bool:
    segments = (segment for segment in snapshot["segments"] if segment.get("device", device) == device)
    return any(block.get("frames") for segment in segments for block in segment.get("blocks", []))


def _frame(file: str, line: int, function: str) -> dict[str, Any]:
    return {"filename": file, "line": line, "name": function}


def _parts(text: str) -> tuple[str, int, str]:
    place, _, function = text.rpartition(" ")
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0, function
