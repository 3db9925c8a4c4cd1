"""Traces a function again for each input length and keeps every trace. Memory: anonymous."""

from clock import steps

traces = {}


def trace(length):
    constants = [float(number) + length for number in range(3000)]  # leak
    return lambda values: sum(a * b for a, b in zip(values, constants, strict=False))


def run(values):
    length = len(values)
    if length not in traces:
        traces[length] = trace(length)
    return traces[length](values)


for step in steps(0.1):
    run([1.0] * (step + 1))
