"""The programs whose memory is in `recorded.csv`: `stormlog run --interval 0.05 -- python3 programs.py NAME`.

The traces named `torch:` are the allocator's own history of two training runs on a GPU.
"""

from __future__ import annotations

import random
import sys
import time

MIB = 1 << 20
STEPS = 160


def touched(mebibytes: int) -> bytearray:
    """Memory that is really there."""
    return bytearray(b"x") * (mebibytes * MIB)


def main(name: str) -> None:
    """Do what the name says."""
    held: list[object] = []
    random.seed(3)
    for step in range(STEPS):
        batch: object = None
        if name == "leak_list":
            held.append(touched(2))
        elif name == "leak_under_batches":
            batch = touched(random.randint(5, 30))
            held.append(touched(1))
            time.sleep(0.01)
        elif name == "leak_each_epoch":
            batch = touched(10)
            time.sleep(0.01)
            if step % 20 == 19:
                held.append(touched(30))
        elif name == "leak_small_objects":
            held.extend({"step": step, "values": [number]} for number in range(2000))
        elif name == "batches":
            batch = touched(random.randint(5, 40))
            time.sleep(0.01)
        elif name == "epochs_given_back":
            held.append(touched(3))
            if step % 20 == 19:
                held.clear()
        elif name == "cache_filled" and len(held) < 30:
            held.append(touched(5))
        elif name == "one_load" and step == 60:
            held.append(touched(100))
        elif name == "fragmenting_allocator":
            batch = [bytes(random.randint(100, 60_000)) for _ in range(1000)]
        del batch
        time.sleep(0.03)


if __name__ == "__main__":
    main(sys.argv[1])
