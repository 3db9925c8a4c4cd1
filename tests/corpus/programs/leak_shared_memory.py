"""Hands frames over in shared memory and never closes the segments. Memory: shared."""

from multiprocessing import shared_memory

from clock import MIB, steps

segments = []


def publish(number):
    segment = shared_memory.SharedMemory(create=True, size=MIB // 2)  # leak
    segment.buf[:] = bytes([number % 256]) * (MIB // 2)
    return segment


for step in steps(0.3):
    segments.append(publish(step))
for segment in segments:
    segment.unlink()
