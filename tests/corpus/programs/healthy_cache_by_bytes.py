"""A cache of rendered tiles bounded to 48 MiB, which it reaches after half of the time."""

import collections
import random

import numpy
from clock import SECONDS, steps

LIMIT = 48 << 20
random.seed(8)


class Tiles:
    def __init__(self):
        self.tiles = collections.OrderedDict()
        self.size = 0

    def get(self, place):
        if place in self.tiles:
            self.tiles.move_to_end(place)
            return self.tiles[place]
        tile = numpy.full(random.randrange(60_000, 100_000), sum(place) % 255, dtype=numpy.uint8)
        self.tiles[place] = tile
        self.size += tile.nbytes
        while self.size > LIMIT:
            _, oldest = self.tiles.popitem(last=False)
            self.size -= oldest.nbytes
        return tile


tiles = Tiles()
per_step = round(LIMIT / 80_000 / (SECONDS / 2) * 0.1 / 0.9) + 1
for _ in steps(0.1):
    for _ in range(per_step):
        tiles.get((random.randrange(200), random.randrange(200), 7))
