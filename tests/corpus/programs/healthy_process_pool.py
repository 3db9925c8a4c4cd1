"""Chunks of a computation are given to a process pool; results are summed and dropped."""

import concurrent.futures

import numpy
from clock import steps


def chunk(number):
    field = numpy.random.default_rng(number).normal(size=(400, 400))
    return field @ field.T


if __name__ == "__main__":
    total = 0.0
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for step in steps(0.4):
            for result in pool.map(chunk, range(4 * step, 4 * step + 4)):
                total += float(result.trace())
