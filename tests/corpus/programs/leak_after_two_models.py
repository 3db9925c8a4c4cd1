"""Loads one model at once, another after a third of the time, and keeps each answer. Memory: anonymous."""

import numpy
from clock import MIB, steps

models = []
answers = []


def load():
    return numpy.full(70 * MIB // 8, 1.0)


def answer(model):
    return model[:14_000] * 2.0  # leak


for step in steps(0.1):
    if step in (0, 230):
        models.append(load())
    answers.append(answer(models[-1]))
