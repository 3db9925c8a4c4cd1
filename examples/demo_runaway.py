"""Knows nothing of Stormlog and keeps every sample it decodes; stops by itself at 200 MB."""

import time


class Cache:
    """Remembers too much."""

    def __init__(self) -> None:
        self.samples: list[bytes] = []

    def put(self, sample: bytes) -> None:
        """Keeps a sample for ever."""
        self.samples.append(sample * 8)


cache = Cache()
for _ in range(200):
    cache.put(bytes(1 << 17))
    time.sleep(0.01)
