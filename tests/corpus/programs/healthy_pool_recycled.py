"""A pool that replaces a worker after twenty tasks."""

import multiprocessing

from clock import steps

memo = []


def solve(number):
    memo.append(bytearray(b"t") * (512 << 10))
    return number


if __name__ == "__main__":
    with multiprocessing.Pool(2, maxtasksperchild=20) as pool:
        for step in steps(0.15):
            pool.apply(solve, (step,))
