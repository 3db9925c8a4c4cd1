"""A scheduler that remembers the future of every job it ever gave to its threads. Memory: anonymous."""

import concurrent.futures
import random

import numpy
from clock import steps

generator = numpy.random.default_rng(5)


def simulate(seed):
    walk = numpy.cumsum(numpy.random.default_rng(seed).normal(size=20_000))  # leak
    return walk


class Scheduler:
    def __init__(self, threads):
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.jobs = []

    def submit(self, *words):
        job = self.pool.submit(simulate, *words)
        self.jobs.append(job)
        return job


random.seed(1)
scheduler = Scheduler(4)
for step in steps(0.1):
    if random.random() < 0.8:
        scheduler.submit(step).add_done_callback(lambda job: job.result().max())
