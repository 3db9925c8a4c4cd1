"""Collects for five seconds, writes out, begins again."""

from clock import steps

rows = []
for step in steps(0.1):
    rows.append(bytearray(b"r") * (1 << 20))
    if step % 50 == 49:
        rows.clear()
