"""What a CUDA out-of-memory bundle says first: where the program was, and why the request failed.

Private. The cause, its sentence and what to try are the rule of `stormlog oom show` (`explain_cuda_oom` of
the native module); this adds the step and the phase, which only the program knows. Imports nothing when
called.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol

from stormlog._native.oom import CudaCounters, explain_cuda_oom

_SMALLER = "a smaller batch or activation checkpointing; the bundle lists what holds most"


class Verdict(NamedTuple):
    """The sentence, what to try, and the request it is about; None where its size is unknown."""

    sentence: str
    tries: list[str]
    cause: str | None = None
    requested_bytes: int | None = None
    largest_usable_free_bytes: int | None = None
    usable_free_bytes: int | None = None


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


def progress(step: int | None, phase: str | None) -> str:
    """` at step 1 204 in backward`; nothing where nothing is known."""
    # Digits are grouped by spaces, as in every other view.
    grouped = f"{step:,}".replace(",", " ") if step else ""
    return (f" at step {grouped}" if step else "") + (f" in {phase}" if phase else "")


def torch_version() -> str | None:
    """The release of PyTorch in this process, if it is loaded."""
    version = getattr(sys.modules.get("torch"), "__version__", None)
    return None if version is None else str(version)


def verdict(
    failure: _Failed, snapshot: dict[str, Any], categories: dict[str, Any], hidden: dict[str, Any]
) -> Verdict:
    """By a snapshot taken at the error; an empty one where there is none."""
    start = f"CUDA out of memory{progress(failure.step, failure.phase)} on GPU {failure.device}"
    counters = CudaCounters(
        segment_bytes=failure.segment_bytes,
        allowed_bytes=failure.allowed_bytes,
        device_free_bytes=failure.free_bytes,
        device_total_bytes=hidden.get("device_total_bytes"),
        other_processes_bytes=hidden.get("other_processes_bytes"),
        allocated_bytes=categories.get("allocated_bytes"),
        reserved_bytes=categories.get("reserved_bytes"),
    )
    found = explain_cuda_oom(snapshot, failure.device, counters, torch_version())
    if found is not None:
        return Verdict(
            f"{start}: {found.sentence}",
            found.remedies,
            found.cause,
            found.requested_bytes,
            found.largest_usable_free_bytes,
            found.usable_free_bytes,
        )
    message = (failure.exception[2] or failure.exception[0]).splitlines()[0]
    if failure.exception[0] == "OutOfMemoryError":
        return Verdict(f"{start}: {message.removeprefix('CUDA out of memory. ')}", [_SMALLER])
    room = "leave the libraries room: torch.cuda.set_per_process_memory_fraction(0.95), or a smaller batch"
    return Verdict(f"{start}, outside PyTorch's allocator: {message}", [room])
