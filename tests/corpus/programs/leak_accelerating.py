"""Keeps a snapshot of its history at every step. Memory: anonymous."""

from clock import steps

snapshots = []
history = b""
for _ in steps(0.2):
    history += b"h" * 2000
    snapshots.append(bytes(bytearray(history)))  # leak
