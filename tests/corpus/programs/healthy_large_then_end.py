"""Holds 200 MiB from the start and lets go of it a second before the end."""

import time

from clock import MIB, steps

held = [bytearray(b"h") * MIB for _ in range(200)]
for step in steps(0.1):
    held[step % 200] = bytearray(b"h") * MIB
held.clear()
time.sleep(1)
