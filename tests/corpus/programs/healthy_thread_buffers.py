"""Sixteen threads that start one after the other, each with a buffer of 4 MiB that it works in."""

import threading

from clock import MIB, steps

done = threading.Event()


def work():
    buffer = bytearray(4 * MIB)
    while not done.wait(0.5):
        buffer[:] = b"t" * len(buffer)


for step in steps(0.5):
    if step < 16:
        threading.Thread(target=work).start()
done.set()
