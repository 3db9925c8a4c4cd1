"""A worker is killed while its parent lives on and ends well."""

import multiprocessing
import os
import signal
import time


def work():
    held = bytearray(20 << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(60)


if __name__ == "__main__":
    worker = multiprocessing.Process(target=work)
    worker.start()
    print(worker.pid, flush=True)
    time.sleep(0.6)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    time.sleep(0.3)
