"""Gradient descent with temporary arrays of some mebibytes."""

import numpy
from clock import steps

weights = numpy.zeros((512, 256))
for step in steps(0.1):
    batch = numpy.full((256, 512), 0.001 * (step % 7))
    gradient = batch.T @ (batch @ weights - 1.0)
    weights -= 1e-4 * gradient
