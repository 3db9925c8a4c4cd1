"""Shared memory for each message, closed and unlinked when it was read."""

from multiprocessing import shared_memory

from clock import MIB, steps

for step in steps(0.2):
    segment = shared_memory.SharedMemory(create=True, size=2 * MIB)
    segment.buf[:] = bytes([step % 256]) * (2 * MIB)
    segment.close()
    segment.unlink()
