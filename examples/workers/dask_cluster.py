"""A Dask cluster on this machine, one of whose workers needs more memory than there is."""

from __future__ import annotations

import contextlib

import dask
from distributed import Client, KilledWorker, LocalCluster


def hoard() -> int:
    """Keeps memory until the kernel ends the worker."""
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def main() -> None:
    """One task on one of two workers; Dask's own limit is off, so that the kernel's decides."""
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None) as cluster,
        Client(cluster) as client,
        contextlib.suppress(KilledWorker),
    ):
        client.submit(hoard).result()


if __name__ == "__main__":
    main()
