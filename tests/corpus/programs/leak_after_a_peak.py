"""Reads a large file, keeps a tenth of it, then an entry for each request. Memory: anonymous."""

from clock import MIB, steps

whole = [bytearray(b"w") * MIB for _ in range(200)]
part = whole[::10]
del whole
entries = {}


def handle(number):
    entries[number] = {"body": bytes(bytearray(b"e") * (75 << 10))}  # leak


for step in steps(0.1):
    handle(step)
