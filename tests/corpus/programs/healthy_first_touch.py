"""A table of 150 MiB, asked for at once and written row by row until the end."""

import numpy
from clock import SECONDS, steps

table = numpy.zeros((1500, 13_000), dtype=numpy.float64)
for step in steps(0.1):
    first = int(step * 0.105 / SECONDS * 1490)
    table[min(first, 1490) : min(first, 1490) + 10] = step
