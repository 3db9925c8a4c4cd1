"""Loads a model of 180 MiB in five seconds, then keeps a copy of every answer. Memory: anonymous."""

import numpy
from clock import MIB, steps

model = []
answers = []


def load_shard(number):
    return numpy.full(4 * MIB // 8, number, dtype=numpy.float64)


def answer(number):
    return bytearray(b"a") * (64 << 10)  # leak


for shard in steps(0.11, 5):
    model.append(load_shard(shard))
for request in steps(0.1):
    answers.append(answer(request))
