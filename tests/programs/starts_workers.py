"""A parent with two workers by the start method given; each holds 20 MB. Prints the workers' pids."""

import multiprocessing
import sys
import time


def work():
    held = bytearray(20 << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(1.2)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    print(*(worker.pid for worker in workers), flush=True)
    for worker in workers:
        worker.join()
