"""Keeps the confusion matrix of every epoch. Memory: anonymous."""

import numpy
from clock import steps

matrices = []


def evaluate(epoch):
    return numpy.full((1100, 1100), epoch, dtype=numpy.float64)  # leak


for step in steps(0.1):
    batch = numpy.ones(100_000)
    if step % 60 == 30:
        matrices.append(evaluate(step))
