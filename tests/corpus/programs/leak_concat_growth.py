"""Collects its evaluation by concatenating to one array that grows. Memory: anonymous."""

import numpy
from clock import steps

results = numpy.zeros((0, 128))
for step in steps(0.25):
    scores = numpy.full((400, 128), float(step))
    results = numpy.concatenate([results, scores])  # leak
