"""Forks, starts processes and threads all the time, for the seconds given."""

import os
import subprocess
import sys
import threading
import time


def allocate():
    data = [bytearray(1 << 20) for _ in range(8)]
    time.sleep(0.02)
    del data


end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    threads = [threading.Thread(target=allocate) for _ in range(8)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if child == 0:
        allocate()
        os._exit(0)
    subprocess.run(["sleep", "0.05"], check=True)
    os.waitpid(child, 0)
    for thread in threads:
        thread.join()
