"""Two worker processes that load batches; the parent uses and drops them."""

import multiprocessing

import numpy
from clock import steps


def load(number):
    return numpy.full(60_000, number, dtype=numpy.float64)


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        for step in steps(0.12):
            pool.apply(load, (step,)).sum()
