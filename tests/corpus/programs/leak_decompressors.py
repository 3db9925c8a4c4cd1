"""Keeps the decompressor of every stream. Memory: anonymous."""

import zlib

from clock import steps

data = zlib.compress(bytes(range(256)) * 400)
streams = []


def begin():
    for _ in range(2):
        stream = zlib.decompressobj()
        stream.decompress(data, 50_000)  # leak
        streams.append(stream)


for _ in steps(0.1):
    begin()
