"""Answers requests for some seconds and logs each of them into a list that only grows.

Usage: stormlog run examples/leak_hunt.py [SECONDS]
"""

from __future__ import annotations

import sys
import time
from typing import Any

PAYLOAD = 8192


class Metrics:
    """What was measured, for a report that is never written."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def append(self, request: int, body: bytes) -> None:
        self.rows.append({"request": request, "body": body, "at": time.monotonic()})


def answer(request: int) -> bytes:
    # Comes and goes with each request; only what Metrics keeps stays.
    scratch = [bytes(PAYLOAD) for _ in range(50)]
    return scratch[request % len(scratch)] + request.to_bytes(4, "big")


metrics = Metrics()


def main() -> None:
    end = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else 15)
    request = 0
    while time.monotonic() < end:
        for _ in range(20):
            metrics.append(request, answer(request))
            request += 1
        time.sleep(0.02)


if __name__ == "__main__":
    main()
