"""Counters labelled by request id: one more dict entry for each request. Memory: anonymous."""

from clock import steps

counters = {}


def count(number):
    for part in range(400):
        counters[f"http_requests_total{{id={number}-{part}}}"] = [number, part, float(part)]  # leak


for step in steps(0.1):
    count(step)
