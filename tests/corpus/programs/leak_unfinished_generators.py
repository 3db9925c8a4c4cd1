"""Readers that are paused after the first record and kept, each with its block. Memory: anonymous."""

import io
import struct

from clock import steps

open_readers = []


def records(stream):
    block = bytearray(stream.read())  # leak
    for start in range(0, len(block), 64):
        yield struct.unpack_from("<q", block, start)[0]


def first_record(number):
    reader = records(io.BytesIO(struct.pack("<q", number) * 12_000))
    open_readers.append(reader)
    return next(reader)


total = 0
for step in steps(0.1):
    total += first_record(step)
