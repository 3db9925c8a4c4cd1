"""A Ray task that needs more memory than there is."""

from __future__ import annotations

import contextlib

import ray


@ray.remote(max_retries=0)
def hoard() -> None:
    """Keeps memory until the kernel ends the worker."""
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def main() -> None:
    """Ray with as little of its own as it starts with."""
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 << 20)
    with contextlib.suppress(ray.exceptions.WorkerCrashedError):
        ray.get(hoard.remote())


if __name__ == "__main__":
    main()
