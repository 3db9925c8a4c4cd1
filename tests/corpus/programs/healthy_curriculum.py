"""Batches that grow for some seconds and begin small again."""

from clock import steps

for step in steps(0.1):
    batch = bytearray((1 + step % 50) * (1 << 20))
    batch[::4096] = b"b" * len(batch[::4096])
