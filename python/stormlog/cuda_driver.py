"""GPU memory outside PyTorch's allocator by library (NCCL, cuBLAS, cuDNN, …), from the driver's events.

Uses CUPTI, which is loaded only on request: by `stormlog run --cuda-driver`, `STORMLOG_CUDA_DRIVER=1`, or

    from stormlog import cuda_driver

    cuda_driver.start()                     # as early as can be: what was taken before is not known
    print(cuda_driver.report(0)["held"])

While this process records its heap (`stormlog run`, `stormlog.heap`), what is allocated beside PyTorch's
allocator is in that capture too, with the stack of the calling thread, as the memory `cuda:N/driver`. With
`backend:cudaMallocAsync` or a pluggable allocator, which do not report to PyTorch's profiler, all is there.

CUPTI allows one subscriber. Where Nsight or a profiler has subscribed, one line reports it and nothing else
changes; where `torch.profiler` begins, the subscription ends, for as long as the program runs: PyTorch keeps
it, and where it is set not to (`TEARDOWN_CUPTI=1`) a program that asked for it again at once never ended.
Must never wait for a device, or raise into the program.
"""

from __future__ import annotations

import functools
import logging
import os
import site
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stormlog import _native

__all__ = ["report", "start", "stop"]

_LOGGER = logging.getLogger("stormlog.cuda_driver")
PYTORCH = "pytorch"
_NOT_FOUND = "CUPTI was not found; install the CUDA Toolkit or nvidia-cuda-cupti, or set STORMLOG_CUPTI"
_KINETOS = "torch.profiler has taken the only CUPTI subscription"
# The beginning of a library's name, and what it is called in reports.
_OWNERS = {
    "libc10_cuda": PYTORCH,
    "libnccl": "nccl",
    "libcublas": "cublas",
    "libcudnn": "cudnn",
    "libcufft": "cufft",
    "libcusparse": "cusparse",
    "libcusolver": "cusolver",
    "libcurand": "curand",
    "libnvshmem": "nvshmem",
    "libtorch": "pytorch_operators",
}


class _State:
    def __init__(self) -> None:
        self.events: _native.cuda.CudaDriverEvents | None = None
        self.why_not: str | None = "it was not requested"
        self.seen: dict[int, dict[str, int]] = {}
        self.is_kinetos = False
        self.lock = threading.Lock()


_STATE = _State()


def start(library: str | None = None) -> bool:
    """Listen from now on; False where that cannot be, with one line in the log that says why."""
    with _STATE.lock:
        if _STATE.events is not None and _STATE.events.is_on:
            _yield_to_kineto()  # torch may have come since
            return True
        why_not = _KINETOS if _STATE.is_kinetos else _NOT_FOUND
        for path in [] if _STATE.is_kinetos else [library] if library else _libraries():
            try:
                _STATE.events = _native.cuda.CudaDriverEvents(path)
            except OSError as error:
                why_not = f"{_NOT_FOUND} ({error})"
            except RuntimeError as error:
                why_not = str(error)
                break
            else:
                _STATE.why_not = None
                _yield_to_kineto()
                return True
        _STATE.why_not = why_not
    _LOGGER.warning("stormlog: no driver-level events: %s", why_not)
    return False


def stop(why: str = "it was stopped") -> None:
    """Listen no more; what was heard stays."""
    with _STATE.lock:
        events = _STATE.events
        if events is not None and events.is_on:
            events.stop()
            _STATE.why_not = why


def report(device: int = 0) -> dict[str, Any]:
    """What each library holds of a device, largest first, and how much of it is not PyTorch's allocator's."""
    events = _STATE.events
    found = None if events is None else events.report()
    held: list[dict[str, Any]] = [
        {"owner": _owner(row.library), "library": row.library, "bytes": row.bytes, "pieces": row.pieces}
        for row in (found.held if found else [])
        if row.device == device
    ]
    return {
        "is_on": events is not None and events.is_on,
        "why_not": _STATE.why_not,
        "held": sorted(held, key=lambda row: row["bytes"], reverse=True),
        "outside_pytorch_bytes": sum(row["bytes"] for row in held if row["owner"] != PYTORCH),
        "allocations": found.allocations if found else 0,
        "frees": found.frees if found else 0,
        "lost": found.lost if found else 0,
        "modules": {
            "count": found.modules if found else 0,
            "bytes": found.module_bytes if found else 0,
        },
    }


def was_heard() -> bool:
    """Whether driver events were ever recorded."""
    return _STATE.events is not None


def grown(device: int, least: int) -> str | None:
    """The library that grew most since the last call, PyTorch's allocator aside; None below `least` bytes."""
    if _STATE.events is None:
        return None
    now: dict[str, int] = {}
    for row in report(device)["held"]:
        now[row["owner"]] = now.get(row["owner"], 0) + row["bytes"]
    before, _STATE.seen[device] = _STATE.seen.get(device, {}), now
    growth = {owner: size - before.get(owner, 0) for owner, size in now.items() if owner != PYTORCH}
    most = max(growth, key=lambda owner: growth[owner], default=None)
    return most if most is not None and growth[most] >= least else None


def _owner(library: str) -> str:
    return next((name for start, name in _OWNERS.items() if library.startswith(start)), library)


def _libraries() -> Iterator[str]:
    """Where CUPTI may be: the one PyTorch has loaded, by its name; then where packages and toolkits are."""
    named = os.environ.get("STORMLOG_CUPTI")
    if named:
        yield named
        return
    torch: Any = sys.modules.get("torch")
    version = getattr(getattr(torch, "version", None), "cuda", None)
    names = [f"libcupti.so.{str(version).split('.')[0]}"] if version else []
    names.append("libcupti.so")
    yield from names
    folders = [Path(folder) / "nvidia" for folder in site.getsitepackages()]
    for folder in [*folders, Path("/usr/local/cuda/extras/CUPTI")]:
        for name in names:
            yield from sorted(str(path) for path in folder.glob(f"**/lib*/{name}*"))


def _yield_to_kineto() -> None:
    """`torch.profiler` needs the place more than we do: it is given up when one is prepared."""
    profiler: Any = sys.modules.get("torch.autograd.profiler")
    prepare: Any = getattr(profiler, "_prepare_profiler", None)
    if prepare is None or hasattr(prepare, "__wrapped__"):
        return

    @functools.wraps(prepare)
    def prepare_alone(*args: Any, **kwargs: Any) -> Any:
        stop(_KINETOS)
        _STATE.is_kinetos = True
        return prepare(*args, **kwargs)

    profiler._prepare_profiler = prepare_alone
