"""Buckets that are flushed every six seconds, and an index that is not. Memory: anonymous."""

from clock import steps

bucket = []
index = []


def store(number):
    bucket.append(bytearray(b"d") * (500 << 10))
    index.append(bytearray(b"i") * (50 << 10))  # leak
    if number % 60 == 59:
        bucket.clear()


for step in steps(0.1):
    store(step)
