"""Batches that grow for twenty seconds and begin small again."""

import time

from clock import steps

begin = time.monotonic()
for _ in steps(0.1):
    batch = bytearray((1 + int(10 * ((time.monotonic() - begin) % 20))) * (1 << 20))
    batch[::4096] = b"b" * len(batch[::4096])
