"""Sixteen shared buffers that are written in turn."""

from multiprocessing import shared_memory

from clock import MIB, steps

ring = [shared_memory.SharedMemory(create=True, size=4 * MIB) for _ in range(16)]
for step in steps(0.3):
    ring[step % 16].buf[:] = bytes([step % 256]) * (4 * MIB)
for segment in ring:
    segment.close()
    segment.unlink()
