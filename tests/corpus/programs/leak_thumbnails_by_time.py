"""The key of a cache of thumbnails has the time of each file, and files change. Memory: anonymous."""

import random
import zlib

import numpy
from clock import steps

random.seed(3)
photos = {f"photo{number}.raw": 0 for number in range(60)}
thumbnails = {}


def decode(name, version):
    seed = zlib.crc32(f"{name}/{version}".encode())
    return numpy.random.default_rng(seed).integers(0, 255, (640, 480, 3), dtype=numpy.uint8)


def thumbnail(name):
    key = (name, photos[name])
    if key not in thumbnails:
        thumbnails[key] = numpy.ascontiguousarray(decode(*key)[::2, ::2])  # leak
    return thumbnails[key]


for _ in steps(0.1):
    photos[random.choice(list(photos))] += 1
    for name in random.sample(list(photos), 8):
        thumbnail(name).mean()
