"""A training loop that keeps each batch's predictions for a plot that is never made. Memory: anonymous."""

import numpy
from clock import steps

history = []


def predict(batch):
    return batch * 0.5 + 1.0  # leak


for step in steps(0.1):
    history.append(predict(numpy.full(16_000, step, dtype=numpy.float64)))
