"""PyTorch's own record of its CUDA allocator: history with stacks, snapshots, and whose memory a block is.

The recording API is private to PyTorch and has had several signatures: which one is there is looked up, never
guessed from a version. A recording the user started stays theirs. Nothing here keeps a tensor alive, and
nothing allocates on the device: it is used when the device is full.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import warnings as python_warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from stormlog import _native
from stormlog._torch.cuda_categories import memory_categories
from stormlog._torch.cuda_snapshot import allocator_snapshot
from stormlog._torch.cuda_tensors import build_cuda_tensor_attribution_index, device_index
from stormlog.utils import _torch_or_none

__all__ = [
    "ALLOCATION_ATTRIBUTION_FILENAME",
    "DEBUG_METADATA_FILENAME",
    "DEFAULT_TRACE_ALLOC_MAX_ENTRIES",
    "MEMORY_CATEGORIES_FILENAME",
    "SEGMENT_SUMMARY_FILENAME",
    "SNAPSHOT_PICKLE_FILENAME",
    "TENSOR_ATTRIBUTION_FILENAME",
    "TRACE_HTML_ANNOTATED_FILENAME",
    "TRACE_HTML_FILENAME",
    "TRACE_SUMMARY_FILENAME",
    "build_cuda_tensor_attribution_index",
    "build_snapshot_allocation_attribution",
    "capture_cuda_snapshot_artifacts",
    "cuda_memory_history",
    "cuda_memory_history_is_on",
    "cuda_memory_history_supported",
    "memory_categories",
    "start_cuda_memory_history",
    "stop_cuda_memory_history",
    "write_cuda_snapshot_artifacts",
]

DEFAULT_TRACE_ALLOC_MAX_ENTRIES = 100_000
SNAPSHOT_PICKLE_FILENAME = _native.oom.CUDA_SNAPSHOT_FILE
TRACE_HTML_FILENAME = "cuda_allocator_state_history.html"
TRACE_HTML_ANNOTATED_FILENAME = "cuda_allocator_state_history_annotated.html"
SEGMENT_SUMMARY_FILENAME = "cuda_allocator_segments.txt"
TRACE_SUMMARY_FILENAME = "cuda_allocator_trace.txt"
TENSOR_ATTRIBUTION_FILENAME = "cuda_tensor_attribution.json"
ALLOCATION_ATTRIBUTION_FILENAME = "cuda_allocation_attribution.json"
MEMORY_CATEGORIES_FILENAME = _native.oom.CUDA_CATEGORIES_FILE
DEBUG_METADATA_FILENAME = "cuda_native_debug_metadata.json"


def cuda_memory_history_supported() -> bool:
    """Whether this PyTorch can record its allocator's history, and has a device to record."""
    torch = _torch_or_none()
    memory = getattr(getattr(torch, "cuda", None), "memory", None)
    return bool(
        memory is not None
        and hasattr(memory, "_record_memory_history")
        and hasattr(memory, "_snapshot")
        and torch.cuda.is_available()
    )


def cuda_memory_history_is_on() -> bool | None:
    """Whether history is being recorded, by whomever; None when this PyTorch does not tell."""
    ask = getattr(getattr(_torch_or_none(), "_C", None), "_cuda_isHistoryEnabled", None)
    try:
        return None if ask is None else bool(ask())
    except RuntimeError:  # a build for CUDA where there is no driver
        return None


def start_cuda_memory_history(
    device: Any = None,
    trace_alloc_max_entries: int = DEFAULT_TRACE_ALLOC_MAX_ENTRIES,
    *,
    skip_actions: Sequence[str] = (),
    with_stacks: bool = True,
) -> None:
    """Record allocations until stopped, at most the last `trace_alloc_max_entries`; by default with stacks.

    Actions to leave out are left out where this PyTorch can do that.
    """
    record = _recorder()
    names = inspect.signature(record).parameters
    if "max_entries" in names:
        state: object = "all"
        wanted: dict[str, object] = {
            # A stack at each free as well would double the cost.
            "context": "alloc" if with_stacks else None,
            "stacks": "python",
            "max_entries": trace_alloc_max_entries,
            "device": device,
            "skip_actions": list(skip_actions),
        }
    elif "trace_alloc_max_entries" in names:
        state = True
        wanted = {
            "record_context": with_stacks,
            "trace_alloc_max_entries": trace_alloc_max_entries,
            "trace_alloc_record_context": with_stacks,
            "device": device,
        }
    else:
        raise RuntimeError(
            f"Unsupported PyTorch: unknown signature of _record_memory_history: {', '.join(names)}"
        )
    record(state, **{name: value for name, value in wanted.items() if name in names})


def stop_cuda_memory_history(device: Any = None) -> None:
    """Stop recording; what was recorded is gone with it."""
    record = _recorder()
    is_newer = "max_entries" in inspect.signature(record).parameters
    record(None if is_newer else False)


@contextmanager
def cuda_memory_history(
    device: Any = None, trace_alloc_max_entries: int = DEFAULT_TRACE_ALLOC_MAX_ENTRIES
) -> Iterator[None]:
    """Record history for a block. A recording that was on already is left as it is, also afterwards."""
    if cuda_memory_history_is_on():
        yield
        return
    start_cuda_memory_history(device, trace_alloc_max_entries)
    try:
        yield
    finally:
        stop_cuda_memory_history(device)


def build_snapshot_allocation_attribution(snapshot: Any, tensor_index: dict[str, Any]) -> dict[str, Any]:
    """The blocks of a snapshot that are the storage of a live tensor."""
    known = {
        int(entry["storage_ptr_int"]): entry for entry in tensor_index.get("attributed_storage_pointers", [])
    }
    found: dict[int, dict[str, Any]] = {}
    for segment in _whole(snapshot).get("segments", []):
        for block in segment.get("blocks", []):
            for address, size in _allocations(block):
                entry = known.get(address)
                if entry is not None:
                    found[address] = {
                        "storage_ptr": hex(address),
                        "storage_ptr_int": address,
                        "size_bytes": size,
                        "segment_address": hex(int(segment.get("address") or 0)),
                        "stream": segment.get("stream"),
                        "names": list(entry.get("names", [])),
                        "tensors": list(entry.get("tensors", [])),
                    }
    return {
        "device_index": tensor_index.get("device_index"),
        "storage_pointer_count": tensor_index.get("storage_pointer_count", 0),
        "attributed_allocation_count": len(found),
        "attributed_allocations": [found[address] for address in sorted(found)],
    }


def capture_cuda_snapshot_artifacts(
    output_dir: Path, *, device: Any = None, history_recorded: bool
) -> list[str]:
    """Take a snapshot now and write what follows from it; the names of the files."""
    _recorder()
    snapshot = allocator_snapshot(_torch_or_none())
    # Garbage is evidence too: it is not collected before it is looked at.
    index = build_cuda_tensor_attribution_index(device, skip_gc=True)
    return write_cuda_snapshot_artifacts(
        output_dir, snapshot, index, history_recorded=history_recorded, device=device
    )


def write_cuda_snapshot_artifacts(
    output_dir: Path,
    snapshot: Any,
    tensor_index: dict[str, Any],
    *,
    history_recorded: bool,
    device: Any = None,
) -> list[str]:
    """Write a snapshot, its attributions and PyTorch's own pages of it; what failed is in the last file."""
    folder = Path(output_dir)
    _native.files.create_directory(folder)
    whole = _whole(snapshot)
    attribution = build_snapshot_allocation_attribution(whole, tensor_index)
    with private_file(folder / SNAPSHOT_PICKLE_FILENAME) as file:
        pickle.dump(whole, file)
    _write(folder / TENSOR_ATTRIBUTION_FILENAME, json.dumps(tensor_index, indent=2))
    _write(folder / ALLOCATION_ATTRIBUTION_FILENAME, json.dumps(attribution, indent=2))
    _write(folder / MEMORY_CATEGORIES_FILENAME, json.dumps(memory_categories(whole, tensor_index), indent=2))
    written = [
        SNAPSHOT_PICKLE_FILENAME,
        TENSOR_ATTRIBUTION_FILENAME,
        ALLOCATION_ATTRIBUTION_FILENAME,
        MEMORY_CATEGORIES_FILENAME,
    ]
    problems: list[str] = []
    for name, render in _pages(whole, tensor_index, device):
        try:
            with python_warnings.catch_warnings():
                python_warnings.simplefilter("ignore")
                text = render()
            _write(folder / name, text)
            written.append(name)
        except Exception as error:
            problems.append(f"{name}: {error}")
    facts = {
        "history_recorded": history_recorded,
        "warning_count": len(problems),
        "warnings": problems,
        "trace_html_written": TRACE_HTML_FILENAME in written,
        "annotated_trace_html_written": TRACE_HTML_ANNOTATED_FILENAME in written,
        "storage_pointer_count": tensor_index.get("storage_pointer_count", 0),
        "attributed_allocation_count": attribution["attributed_allocation_count"],
    }
    _write(folder / DEBUG_METADATA_FILENAME, json.dumps(facts, indent=2))
    return [*written, DEBUG_METADATA_FILENAME]


def _recorder() -> Callable[..., object]:
    if not cuda_memory_history_supported():
        raise RuntimeError("Native CUDA memory history is unavailable in this PyTorch runtime.")
    record: Callable[..., object] = _torch_or_none().cuda.memory._record_memory_history
    return record


def _pages(
    snapshot: dict[str, Any], tensor_index: dict[str, Any], device: Any
) -> Iterator[tuple[str, Callable[[], str]]]:
    def viewer() -> Any:
        return import_module("torch.cuda._memory_viz")

    def attributed() -> str:
        from stormlog.attributed_viz import render_attributed_html

        return render_attributed_html(snapshot, tensor_index, device=device_index(device) or 0)

    yield SEGMENT_SUMMARY_FILENAME, lambda: str(viewer().segsum(snapshot))
    yield TRACE_SUMMARY_FILENAME, lambda: str(viewer().trace(snapshot))
    yield TRACE_HTML_FILENAME, lambda: str(viewer().trace_plot(snapshot, device=device_index(device)))
    yield TRACE_HTML_ANNOTATED_FILENAME, attributed


def _whole(snapshot: Any) -> dict[str, Any]:
    """A snapshot of any age: older ones are the bare list of segments."""
    if isinstance(snapshot, list):
        return {"segments": snapshot, "device_traces": []}
    if not isinstance(snapshot, dict):
        raise TypeError(f"Unsupported snapshot payload type: {type(snapshot).__name__}")
    return {
        **snapshot,
        "segments": list(snapshot.get("segments", [])),
        "device_traces": list(snapshot.get("device_traces", [])),
    }


def _allocations(block: dict[str, Any]) -> list[tuple[int, int]]:
    history = block.get("history") or []
    if history:
        return [(int(entry.get("addr") or 0), int(entry.get("real_size") or 0)) for entry in history]
    return [(int(block.get("address") or 0), int(block.get("size") or 0))]


def private_file(path: Path) -> BinaryIO:
    """A new file that only this user can read, in place of what is there."""
    path.unlink(missing_ok=True)
    return os.fdopen(_native.files.create_file(path), "wb")


def _write(path: Path, text: str) -> None:
    _native.files.replace_file(path, text.encode())
