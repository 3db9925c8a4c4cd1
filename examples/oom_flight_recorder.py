"""The OOM flight recorder of the Python API: a step that runs out of memory, and the bundle that it leaves.

Usage: python examples/oom_flight_recorder.py [--simulate]

The address space is limited to 512 MiB more than at the start, so that the step fails and not the machine.
`--simulate` raises the error instead. With a GPU, use `MemoryTracker(device=0)`.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from gpumemprof import CPUMemoryTracker

STEP = 32 << 20
ROOM = 512 << 20


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def forward(batches: list[bytearray]) -> None:
    if "--simulate" in sys.argv:
        raise RuntimeError("simulated out of memory for demo")
    while True:
        batches.append(bytearray(STEP))


def main() -> None:
    tracker = CPUMemoryTracker(
        sampling_interval=0.05,
        enable_oom_flight_recorder=True,
        oom_dump_dir="oom_dumps",
        oom_max_dumps=3,
        oom_max_total_mb=128,
    )
    limit_memory()
    batches: list[bytearray] = []
    with tracker:
        try:
            with tracker.capture_oom(context="training.forward", metadata={"batch_mb": STEP >> 20}):
                forward(batches)
        except (MemoryError, RuntimeError) as error:
            print(f"{type(error).__name__} after {len(batches)} batches")
    print(f"Bundle: {tracker.last_oom_dump_path}")


if __name__ == "__main__":
    main()
