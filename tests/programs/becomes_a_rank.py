"""Forks a child that is a copy for a while, then rank 3 of 4 by exec. Prints the number of the child."""

import os
import sys
import time

child = os.fork()
if child == 0:
    time.sleep(0.25)
    rank = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.6)"], os.environ | rank)
print(child, flush=True)
os.waitpid(child, 0)
