# Out-of-memory exceptions and their bundles: the submodule `stormlog._native.oom`.
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, final

__all__ = [
    "CUBLAS_WORKSPACE_BYTES",
    "CUBLAS_WORKSPACE_HOPPER_BYTES",
    "CUDA_CATEGORIES_FILE",
    "CUDA_OOM_FILE",
    "CUDA_SNAPSHOT_FILE",
    "GPU_MEMORY_CATEGORIES",
    "AllocationFailure",
    "CudaCounters",
    "CudaOomVerdict",
    "ExceptionFacts",
    "ExceptionVerdict",
    "classify_exception",
    "explain_allocation_failure",
    "explain_cuda_oom",
    "prune_bundles",
]

@final
class ExceptionFacts:
    def __new__(
        cls, *, type_name: str, module: str, bases: Sequence[str], message: str, errno: int | None = None
    ) -> Self: ...
    @property
    def type_name(self) -> str: ...
    @property
    def module(self) -> str: ...
    @property
    def bases(self) -> list[str]: ...
    @property
    def message(self) -> str: ...
    @property
    def errno(self) -> int | None: ...

@final
class ExceptionVerdict:
    @property
    def is_oom(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def cause(self) -> str | None: ...

def classify_exception(facts: ExceptionFacts) -> ExceptionVerdict: ...
def prune_bundles(
    root: str | os.PathLike[str], keep: str | os.PathLike[str], max_dumps: int, max_total_mb: int
) -> list[Path]: ...

# A CUDA out-of-memory error: the files of its bundle, the words for GPU memory, and why the request failed.
CUDA_OOM_FILE: str
CUDA_CATEGORIES_FILE: str
CUDA_SNAPSHOT_FILE: str
GPU_MEMORY_CATEGORIES: tuple[str, ...]
CUBLAS_WORKSPACE_BYTES: int
CUBLAS_WORKSPACE_HOPPER_BYTES: int

@final
class CudaCounters:
    def __new__(
        cls,
        *,
        segment_bytes: int | None = None,
        allowed_bytes: int | None = None,
        device_free_bytes: int | None = None,
        device_total_bytes: int | None = None,
        other_processes_bytes: int | None = None,
        allocated_bytes: int | None = None,
        reserved_bytes: int | None = None,
    ) -> Self: ...
    @property
    def segment_bytes(self) -> int | None: ...
    @property
    def allowed_bytes(self) -> int | None: ...
    @property
    def device_free_bytes(self) -> int | None: ...
    @property
    def device_total_bytes(self) -> int | None: ...
    @property
    def other_processes_bytes(self) -> int | None: ...
    @property
    def allocated_bytes(self) -> int | None: ...
    @property
    def reserved_bytes(self) -> int | None: ...

@final
class CudaOomVerdict:
    @property
    def cause(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def remedies(self) -> list[str]: ...
    @property
    def requested_bytes(self) -> int: ...
    @property
    def largest_usable_free_bytes(self) -> int: ...
    @property
    def usable_free_bytes(self) -> int: ...

# By a snapshot taken at the failure; None where the size of the request is unknown.
def explain_cuda_oom(
    snapshot: dict[str, Any], device: int, counters: CudaCounters, torch_version: str | None
) -> CudaOomVerdict | None: ...

# What an allocator (TensorFlow's, JAX's) reports of a failed allocation: the one that decided.
@final
class AllocationFailure:
    # `too_large`, `fragmented`, `driver_refused` or `unknown`.
    @property
    def verdict(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def page(self) -> str: ...
    @property
    def allocator(self) -> str | None: ...
    @property
    def device(self) -> str | None: ...
    @property
    def requester(self) -> str | None: ...
    @property
    def requested_bytes(self) -> int | None: ...
    @property
    def free_bytes(self) -> int | None: ...
    @property
    def largest_free_bytes(self) -> int | None: ...
    @property
    def limit_bytes(self) -> int | None: ...
    @property
    def in_use_bytes(self) -> int | None: ...
    # What holds memory by name, its bytes, and what more is known.
    @property
    def holders(self) -> list[tuple[str, int, str | None]]: ...
    # The same by the size of chunks, which have no name.
    @property
    def chunk_sizes(self) -> list[tuple[str, int, str | None]]: ...
    @property
    def remedies(self) -> list[str]: ...
    @property
    def failures(self) -> int: ...

# None where the text reports none.
def explain_allocation_failure(text: str) -> AllocationFailure | None: ...
