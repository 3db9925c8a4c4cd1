"""A replay buffer of 120 MiB that is written through once in half of the time, then over itself."""

import numpy
from clock import steps

buffer = numpy.zeros((3000, 5000), dtype=numpy.float64)
for step in steps(0.1):
    first = step * 9 % 2990
    buffer[first : first + 9] = step
