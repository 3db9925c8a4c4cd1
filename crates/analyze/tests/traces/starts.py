"""The programs of `starts.csv`: `stormlog run -- python3 starts.py NAME`, on a machine at work.

They end without giving anything back first, as a program does that is killed or calls `os._exit`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time

MIB = 1 << 20
SCIENCE = [
    "numpy",
    "scipy.stats",
    "pandas",
    "scipy.optimize",
    "scipy.signal",
    "scipy.sparse",
    "scipy.spatial",
]
TORCH = ["torch", "torch.distributed", "torch.utils.data"]


def load(names: list[str], pause: float = 0.0) -> None:
    """Import, as slowly as asked."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        time.sleep(pause)


def keep(held: list[object], times: int, mebibytes: int) -> None:
    """Leak so much each twentieth of a second."""
    for _ in range(times):
        held.append(bytearray(b"x") * (mebibytes * MIB))
        time.sleep(0.05)


def main(name: str) -> None:
    """Do what the name says."""
    held: list[object] = []
    if name == "imports_science":
        load(SCIENCE)
    elif name == "imports_torch":
        load(TORCH)
    elif name == "imports_everything":
        plain = (one for one in sorted(sys.stdlib_module_names) if not one.startswith("_"))
        load([one for one in plain if one not in {"antigravity", "this"}], 0.02)
    elif name == "leak_after_torch":
        load(TORCH)
        keep(held, 60, 8)
    elif name == "leak_at_once":
        keep(held, 60, 6)
    elif name == "leak_around_an_import":
        keep(held, 50, 8)
        load(["decimal", "sqlite3", "ssl"])
        keep(held, 30, 8)
    elif name == "leak_before_an_import":
        keep(held, 80, 6)
        load(["decimal", "sqlite3", "ssl"])
    elif name == "leak_of_objects":
        for _ in range(400):
            held.append([object() for _ in range(3000)])
            time.sleep(0.01)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
