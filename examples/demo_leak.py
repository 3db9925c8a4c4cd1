"""A program with a leak that records itself: demo_leak.py DIRECTORY. `make demo` kills it in the middle.

Every step needs some memory for a moment and forgets to give a part of it back.
"""

from __future__ import annotations

import resource
import sys
import time

from stormlog.recording import Recorder

MEGABYTE = 1 << 20
MOST_LEAKED = 150 * MEGABYTE

# Should anything go wrong, this program ends, not the machine's memory.
resource.setrlimit(resource.RLIMIT_AS, (1024 * MEGABYTE, 1024 * MEGABYTE))

cache: list[bytearray] = []
with Recorder(sys.argv[1]) as recorder:
    recorder.start(interval=0.005)
    step = 0
    while sum(map(len, cache)) < MOST_LEAKED:
        step += 1
        batch = [bytearray(MEGABYTE) for _ in range(25)]
        time.sleep(0.03)
        cache.append(batch[0] + batch[1])
        del batch
        time.sleep(0.03)
        sys.stdout.write(f"step {step}\n")
        sys.stdout.flush()
