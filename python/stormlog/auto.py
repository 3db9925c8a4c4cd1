"""Records a PyTorch or JAX program without a change to it: `import stormlog.auto`, anywhere in it.

From then on the heap is recorded as `stormlog run` does by itself: GPU memory block by block, the host's as a
bounded sample, both by line. When CUDA is first used, the caching allocator and the driver are sampled, and
an out-of-memory error leaves a bundle before the exception is raised.
`stormlog run` does the same for a program that does not import this, and so does `STORMLOG=1` in the
environment.

Importing it must never fail, print, import torch, or use the GPU.

    STORMLOG_DIR             where recordings go (stormlog-runs); under `stormlog run`, its directory
    STORMLOG_INTERVAL        seconds between two samples (0.1, or the interval of `stormlog run`)
    STORMLOG_TORCH=0         record nothing
    STORMLOG_TORCH_HISTORY   PyTorch's own allocator history: off (default), segments (for `stormlog replay`,
                             with our stacks), stacks (with PyTorch's)
    STORMLOG_AUTO_HEAP=0     no recording of the heap and of GPU memory by line
    STORMLOG_TORCH_OOM=0     no bundle at an out-of-memory error
    STORMLOG_JAX=0           record nothing of JAX
    STORMLOG_REQUESTS=0      do not answer `stormlog snapshot --pid` and `stormlog trigger` from inside
    STORMLOG_SNAPSHOT_SIGNAL=SIGUSR2   this signal asks for a snapshot (never over a handler of the program)
    STORMLOG_CUDA_DRIVER=1   GPU memory beside PyTorch by library, from driver events (stormlog.cuda_driver)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

from stormlog._torch.post_import import when_imported

__all__ = ["directory", "is_recording", "start", "stop"]

# Modules that use the driver's memory without PyTorch (`stormlog run` waits for the same ones).
_USERS_OF_THE_DRIVER = ("cupy", "numba.cuda", "rmm", "pycuda.driver", "cuda.bindings", "jax", "tensorflow")


def start() -> None:
    """Record from now on, or from the moment torch is imported. A second time does nothing."""
    when_imported("torch", lambda: _recorder().arm())
    when_imported("jax", _record_jax)
    if "STORMLOG_CUDA_DRIVER" in os.environ:
        for name in _USERS_OF_THE_DRIVER:
            when_imported(name, _follow_driver)


def stop() -> None:
    """End the sessions and the history; an out-of-memory error leaves nothing any more."""
    _recorder().stop()
    jax_recorder = sys.modules.get("stormlog._jax.auto")
    if jax_recorder is not None:
        jax_recorder.stop()


def is_recording() -> bool:
    """Whether a GPU is being recorded."""
    return any(index >= 0 for index in _recorder().STATE.devices)


def directory() -> Path | None:
    """Where this process records; None before there was anything to record."""
    found: Path | None = _recorder().STATE.directory
    recording = getattr(sys.modules.get("stormlog._jax.auto"), "RECORDING", None)
    return recording.directory if found is None and recording is not None else found


def _record_jax() -> None:
    from stormlog._jax import auto as jax_recorder

    jax_recorder.arm()


def _follow_driver() -> None:
    from stormlog import cuda_driver
    from stormlog._torch.auto_settings import Settings

    if Settings.of(os.environ).follows_driver:
        cuda_driver.start()


def _recorder() -> ModuleType:
    # Only now: a program that never imports torch need not pay for it.
    from stormlog._torch import auto as _auto

    return _auto


start()
