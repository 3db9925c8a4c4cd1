"""The bundle of a CUDA out-of-memory error: the allocator's whole state, and what it means.

Private. Written while the error is on its way to the user, in the thread that ran out. Keeps nothing: no
frame, no tensor, no snapshot. What cannot be had is left out; the bundle is written all the same.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stormlog import _native, cuda_native_debug, hidden_memory
from stormlog._torch.auto_progress import STEPS, phase_of, stack_and_phase
from stormlog._torch.auto_verdict import torch_version, verdict
from stormlog._torch.cuda_categories import responsible, tensor_categories, workspace_bytes
from stormlog._torch.cuda_snapshot import allocator_snapshot
from stormlog._torch.meter import CudaMeter
from stormlog._torch.recorded_stacks import complete
from stormlog._tracking.failure import largest_tensors
from stormlog.tracker import MemoryTracker

_LOGGER = logging.getLogger("stormlog.auto")
OOM_FILENAME = _native.oom.CUDA_OOM_FILE
_HOLDERS = 8


@dataclasses.dataclass(frozen=True)
class Failure:
    """What is known of an error before anything is looked at; None is unknown."""

    device: int
    reason: str
    exception: tuple[str, str, str]
    segment_bytes: int | None
    allowed_bytes: int | None
    free_bytes: int | None
    stack: tuple[str, ...]
    thread: str
    is_recorded: bool
    step: int | None = None
    phase: str | None = None

    @classmethod
    def of_allocator(cls, device: int, wanted: int, allowed: int, free: int, is_recorded: bool) -> Failure:
        """As PyTorch's observer reports it."""
        text = f"CUDA out of memory. Tried to allocate {_native.text.binary_size(wanted)} on device {device}."
        names = ("OutOfMemoryError", "torch", text)
        reason = "torch.cuda.OutOfMemoryError"
        stack, phase = stack_and_phase()
        step = STEPS.current()
        thread = threading.current_thread().name
        return cls(device, reason, names, wanted, allowed, free, stack, thread, is_recorded, step, phase)

    @classmethod
    def of_exception(
        cls,
        device: int,
        reason: str,
        exception: tuple[str, str, str],
        stack: tuple[str, ...],
        is_recorded: bool,
    ) -> Failure:
        """Of an exception that was not caught."""
        thread = threading.current_thread().name
        step, phase = STEPS.current(), phase_of(stack)
        return cls(device, reason, exception, None, None, None, stack, thread, is_recorded, step, phase)


def write(tracker: MemoryTracker, folder: Path, failure: Failure, skipped: int) -> bool:
    """Write the bundle: the events first, which is quick, then the allocator's state into it."""
    began = time.monotonic()
    native = tracker._ensure()
    sample = native.sample_now().sample
    tracker._add_event("error", 0, failure.exception[2], {"oom_reason": failure.reason}, sample)
    facts = {
        **tracker.distributed_identity,
        "device_index": failure.device,
        "thread": failure.thread,
        "earlier_errors_without_bundle": skipped,
        "traceback": [_frame(line) for line in reversed(failure.stack)],
    }
    path = native.dump(
        root=folder,
        backend=tracker.backend,
        reason=failure.reason,
        cause="oom_exception",
        exception=failure.exception,
        context=None,
        custom_metadata=facts,
        system=_system(),
    )
    if path is None:
        return False
    problems: list[str] = []
    page = _page(Path(path), failure, problems)
    _state_in(Path(path), page)
    took = round(time.monotonic() - began, 3)
    _replace(Path(path) / OOM_FILENAME, {**page, "problems": problems, "seconds_to_write": took})
    return True


def _page(bundle: Path, failure: Failure, problems: list[str]) -> dict[str, Any]:
    """Everything for `oom show`, the large files on the way."""
    torch: Any = sys.modules["torch"]
    snapshot: dict[str, Any] = {}
    categories: dict[str, Any] = {}
    held: list[dict[str, Any]] = []
    is_recorded = False
    try:
        snapshot = cuda_native_debug._whole(allocator_snapshot(torch))
        wanted, free = failure.segment_bytes, failure.free_bytes
        is_recorded = complete(snapshot, failure.device, wanted, free, failure.stack)
        with cuda_native_debug.private_file(bundle / cuda_native_debug.SNAPSHOT_PICKLE_FILENAME) as file:
            pickle.dump(snapshot, file, protocol=4)
    except Exception as error:
        problems.append(f"snapshot: {_sentence(error)}")
    try:
        index = cuda_native_debug.build_cuda_tensor_attribution_index(failure.device, skip_gc=True)
        if snapshot:
            workspace = _quietly(lambda: workspace_bytes(torch, failure.device))
            categories = cuda_native_debug.memory_categories(snapshot, index, workspace)
        if any(row["frames"] for row in categories.get("top_stacks", [])):
            held = list(_holders(categories, failure.is_recorded or is_recorded))
        else:
            held = [holder.to_dict() for holder in largest_tensors(index)]
        if not snapshot:
            now = CudaMeter(torch, failure.device).read()
            categories = tensor_categories(index, now.allocated, now.reserved)
        _replace(bundle / cuda_native_debug.MEMORY_CATEGORIES_FILENAME, categories)
    except Exception as error:
        problems.append(f"categories: {_sentence(error)}")
    hidden = _hidden(failure.device, problems)
    found = verdict(failure, snapshot, categories, hidden)
    return {
        "format": "stormlog.cuda_oom",
        "schema_version": 1,
        "device_index": failure.device,
        "device_name": _quietly(lambda: torch.cuda.get_device_name(failure.device)),
        "requested_bytes": found.requested_bytes,
        "segment_bytes": failure.segment_bytes,
        "largest_usable_block_bytes": found.largest_usable_free_bytes,
        "usable_free_bytes": found.usable_free_bytes,
        "allowed_bytes": failure.allowed_bytes,
        "device_free_bytes": failure.free_bytes,
        "device_total_bytes": hidden.get("device_total_bytes"),
        "allocated_bytes": categories.get("allocated_bytes"),
        "reserved_bytes": categories.get("reserved_bytes"),
        "categories": categories.get("categories"),
        "allocator_backend": _quietly(torch._C._cuda_getAllocatorBackend),
        "allocator_settings": snapshot.get("allocator_settings"),
        "torch_version": torch_version(),
        "hidden_memory": hidden,
        "verdict": found.sentence,
        "cause": found.cause,
        "try": found.tries,
        "held_by": held,
        "stack": list(failure.stack),
        "thread": failure.thread,
        "step": failure.step,
        "phase": failure.phase,
        "history_recorded": failure.is_recorded or bool(cuda_native_debug.cuda_memory_history_is_on()),
    }


def _hidden(device: int, problems: list[str]) -> dict[str, Any]:
    try:
        return hidden_memory.report(device)
    except Exception as error:
        problems.append(f"hidden memory: {_sentence(error)}")
        return {}


def _holders(categories: dict[str, Any], is_recorded: bool) -> Iterator[dict[str, Any]]:
    """The places that hold most: of each stack the user's own frame."""
    # Where the history began with CUDA itself, only threads of PyTorch's own have no stack.
    unknown = (
        "a backward pass or another thread without Python" if is_recorded else "before the history began"
    )
    sums: dict[tuple[str, str | None], list[int]] = {}
    for row in categories.get("top_stacks", []):
        frames = row.get("frames") or []
        # The caller says more than a helper that allocates for the whole program.
        total = sums.setdefault(responsible(frames) or (unknown, None), [0, 0])
        total[0] += int(row["bytes"])
        total[1] += int(row["blocks"])
    largest = sorted(sums.items(), key=lambda item: item[1][0], reverse=True)[:_HOLDERS]
    for (place, caller), (size, blocks) in largest:
        note = f"{blocks} block{'' if blocks == 1 else 's'}" + (f", for {caller}" if caller else "")
        yield {"place": place, "bytes": size, "note": note}


def _state_in(bundle: Path, page: dict[str, Any]) -> None:
    """The bundle's own files say what the others hold."""
    large = (cuda_native_debug.SNAPSHOT_PICKLE_FILENAME, cuda_native_debug.MEMORY_CATEGORIES_FILENAME)
    there = [OOM_FILENAME, *(name for name in large if (bundle / name).exists())]
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"] = list(dict.fromkeys([*manifest.get("files", []), *there]))
    evidence = json.loads((bundle / "evidence.json").read_text(encoding="utf-8"))
    evidence["verdict"], evidence["try"] = page["verdict"], page["try"]
    evidence["held_by"] = page["held_by"]
    _replace(bundle / "evidence.json", evidence)
    _replace(bundle / "manifest.json", manifest)


def _frame(line: str) -> dict[str, Any]:
    place, _, function = line.rpartition(" ")
    file, _, number = place.rpartition(":")
    return {"file": file, "line": int(number), "function": function}


def _system() -> dict[str, Any]:
    torch: Any = sys.modules["torch"]
    return {
        "python_version": sys.version,
        "torch_version": str(getattr(torch, "__version__", "unknown")),
        "cuda_version": getattr(getattr(torch, "version", None), "cuda", None),
        "memory_total": _native.tracking.host_memory()[0],
    }


def _sentence(error: Exception) -> str:
    """What it says, without the C++ stack PyTorch appends."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _quietly(ask: Any) -> Any:
    try:
        return ask()
    except Exception:
        return None


def _replace(path: Path, payload: dict[str, Any]) -> None:
    """Whole or not at all: the process may be killed while it writes this."""
    _native.files.replace_file(path, json.dumps(payload, indent=2, default=str).encode())
