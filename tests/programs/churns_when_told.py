"""Holds blocks of two lines, and for each line of input replaces that many, random sizes; then waits.

Prints "ready" when it holds them and "done" after each round. The blocks are larger than those that Python's
own allocator takes, so that each is one allocation.
"""

import sys

HELD, LARGE, SMALL = 200, 50_000, 5_000
POOL, MASK = 300, (1 << 64) - 1


def hold_large() -> list[bytes]:
    kept = [b""] * HELD
    for index in range(HELD):
        kept[index] = bytes(LARGE)
    return kept


def hold_small() -> list[bytes]:
    kept = [b""] * HELD
    for index in range(HELD):
        kept[index] = bytes(SMALL)
    return kept


def churn(rounds: int) -> None:
    pool = [b""] * POOL
    state = 1
    for _ in range(rounds):
        state = state * 6364136223846793005 + 1442695040888963407 & MASK
        pool[(state >> 33) % POOL] = bytes(1000 + (state >> 48) % 5000)


large, small = hold_large(), []
print("ready", flush=True)
for line in sys.stdin:
    churn(int(line))
    small.append(hold_small())
    print("done", flush=True)
