"""Serves one model, and a second one from the middle on."""

import numpy
from clock import MIB, steps

models = []


def load():
    models.append(numpy.full(60 * MIB // 8, 1.0))


for step in steps(0.1):
    if step in (20, 380):
        load()
    (models[-1][:100_000] * 2).sum() if models else None
