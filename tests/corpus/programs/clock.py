"""The pace of the programs here: a step every so often, until the time of the recording is over.

`CORPUS_SECONDS` is that time, and `CORPUS_PACE` a factor of the pauses: 0.2 is five times as many steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

SECONDS = float(os.environ.get("CORPUS_SECONDS", "70"))
PACE = float(os.environ.get("CORPUS_PACE", "1"))
MIB = 1 << 20


def steps(interval: float = 0.1, seconds: float = SECONDS) -> Iterator[int]:
    """Numbers from 0, one each `interval` seconds, for `seconds`."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1
        time.sleep(PACE * interval)
