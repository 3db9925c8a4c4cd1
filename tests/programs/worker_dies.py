"""A worker dies while its parent lives on and ends well. Arguments: start method, and how it dies."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time

SYS_KILL = 62  # x86-64


def work(how, ready):
    held = bytearray(20 << 20)
    held[::4096] = b"x" * len(held[::4096])
    ready.set()
    time.sleep(0.4)
    if how == "exit":
        os._exit(5)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "raise":
        raise RuntimeError("bad batch")
    if how == "grow":
        more = []
        while len(more) < 400:
            more.append(b"x" * (1 << 20))
            time.sleep(0.005)
    time.sleep(60)


if __name__ == "__main__":
    method, how = sys.argv[1:3] if len(sys.argv) > 2 else ("fork", "kill")
    context = multiprocessing.get_context(method)
    ready = context.Event()
    worker = context.Process(target=work, args=(how, ready))
    worker.start()
    print(worker.pid, flush=True)
    ready.wait()  # a loaded machine takes its time to start an interpreter
    if how == "kill":
        time.sleep(1.5)  # many readings of what it holds, also where they come late
        # A raw system call is not recorded: as for a signal from outside, the sender is not known.
        ctypes.CDLL(None).syscall(SYS_KILL, worker.pid, int(signal.SIGKILL))
    worker.join()
    time.sleep(0.2)
