"""A spawned loader that keeps the decoded form of every file. Memory: anonymous."""

import multiprocessing

from clock import steps

decoded = {}


def decode(number):
    return [b"%d" % number * 20 for _ in range(1500)]  # leak


def work():
    for number in steps(0.1):
        decoded[number] = decode(number)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=work)
    worker.start()
    worker.join()
