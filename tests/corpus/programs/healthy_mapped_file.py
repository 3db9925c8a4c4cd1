"""Reads a mapped file of 150 MiB from front to back."""

import mmap
import tempfile

from clock import MIB, steps

with tempfile.TemporaryFile() as file:
    for _ in range(150):
        file.write(b"f" * MIB)
    file.flush()
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as area:
        for step in steps(0.1):
            first = step * 220 << 10
            sum(area[first : first + (220 << 10) : 4096])
