"""Waits for the seconds given, prints the time and dies at once: by a signal, or in one of the ways below."""

import atexit
import os
import signal
import sys
import time


def tell() -> None:
    os.write(1, f"{time.time_ns()}\n".encode())


how, wait = sys.argv[1], float(sys.argv[2])
held = [b"x" * (20 << 20)]
if how == "worker" and os.fork() > 0:
    os.wait()  # the program itself lives on
    time.sleep(wait)
    sys.exit()
time.sleep(wait)
while how == "oom":  # until the killer comes
    tell()
    held.append(b"x" * (1 << 20))
    time.sleep(0.005)
if how in ("ValueError", "MemoryError"):
    atexit.register(tell)  # after the exception was shown, and reported
    raise {"ValueError": ValueError, "MemoryError": MemoryError}[how]
tell()
if how == "exit":
    os._exit(3)
os.kill(os.getpid(), getattr(signal, "SIGKILL" if how == "worker" else how))
time.sleep(60)
