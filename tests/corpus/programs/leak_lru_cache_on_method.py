"""`lru_cache` without a bound on a method keeps every instance with its buffer. Memory: anonymous."""

import functools

from clock import steps


class Request:
    def __init__(self, number):
        self.number = number
        self.body = bytearray(b"b") * (100 << 10)  # leak

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def digest(self):
        return sum(self.body[:100])


for step in steps(0.1):
    Request(step).digest()
