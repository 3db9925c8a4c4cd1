"""Batches within epochs: small teeth on large ones."""

from clock import steps

batch = []
epoch = []
for step in steps(0.1):
    batch.append(bytearray(b"b") * (1 << 20))
    epoch.append(bytearray(b"e") * (200 << 10))
    if step % 20 == 19:
        batch.clear()
    if step % 160 == 159:
        epoch.clear()
