"""A pool whose workers memoise every task. Memory: anonymous."""

import multiprocessing

from clock import steps

memo = {}


def solve(number):
    if number not in memo:
        memo[number] = bytearray(b"m") * (256 << 10)  # leak
    return len(memo[number])


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        for step in steps(0.12):
            pool.apply(solve, (step,))
