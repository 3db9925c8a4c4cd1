"""A worker for ten seconds of work, then another: each ends with what it held."""

import multiprocessing

from clock import SECONDS, steps


def work():
    rows = []
    for step in steps(0.1, SECONDS / 7):
        rows.append(bytearray(b"r") * (150 << 10))
        if step % 30 == 29:
            rows.clear()


if __name__ == "__main__":
    for _ in range(7):
        worker = multiprocessing.Process(target=work)
        worker.start()
        worker.join()
