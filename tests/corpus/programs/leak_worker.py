"""One worker process keeps the features of every item; the parent only waits. Memory: anonymous."""

import multiprocessing

import numpy
from clock import steps

features = []


def extract(number):
    return numpy.full(15_000, number, dtype=numpy.float64)  # leak


def work():
    for number in steps(0.1):
        features.append(extract(number))


if __name__ == "__main__":
    worker = multiprocessing.Process(target=work)
    worker.start()
    worker.join()
