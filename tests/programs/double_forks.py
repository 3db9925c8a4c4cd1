"""A daemon's double fork: the process in between is gone within microseconds.

Prints the daemon's pid and that of its parent.
The daemon waits for the seconds given and then dies of SIGKILL; its first parent lives a little longer.
"""

import os
import signal
import sys
import time

wait = float(sys.argv[1])
read, write = os.pipe()
child = os.fork()
if child == 0:
    between = os.getpid()
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    while os.getppid() == between:
        time.sleep(0.001)
    os.write(write, f"{os.getpid()} {os.getppid()}\n".encode())
    os.close(write)
    held = b"x" * (20 << 20)
    time.sleep(wait)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
os.close(write)
sys.stdout.write(os.fdopen(read).readline())
sys.stdout.flush()
time.sleep(wait + 0.4)
