"""Children by fork, exec and the ways of multiprocessing, each allocating from a line of its own."""

import multiprocessing
import os
import subprocess
import sys


def in_fork():
    return bytearray(3 << 20)


def in_worker(queue):
    queue.put(len(bytearray(5 << 20)))


def main():
    child = os.fork()
    if child == 0:
        in_fork()
        os._exit(0)
    os.waitpid(child, 0)
    subprocess.run(
        [sys.executable, "-c", "def in_exec():\n    return bytearray(7 << 20)\nin_exec()"], check=True
    )
    for way in ("spawn", "forkserver"):
        context = multiprocessing.get_context(way)
        queue = context.Queue()
        worker = context.Process(target=in_worker, args=(queue,))
        worker.start()
        assert queue.get(timeout=60) == 5 << 20
        worker.join()


if __name__ == "__main__":
    main()
