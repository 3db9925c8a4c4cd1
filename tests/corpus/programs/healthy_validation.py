"""Epochs of twelve seconds whose validation takes 80 MiB more."""

from clock import MIB, steps

weights = bytearray(b"w") * (60 * MIB)
validation = []
for step in steps(0.1):
    if step % 120 == 90:
        validation = [bytearray(b"v") * MIB for _ in range(80)]
    if step % 120 == 119:
        validation = []
