"""A thread takes what several producers put into a list, every six seconds, and writes it to a file."""

import random
import tempfile
import threading
import time

from clock import PACE, SECONDS

random.seed(6)
lock = threading.Lock()
waiting = []
end = time.monotonic() + SECONDS


def produce():
    while time.monotonic() < end:
        line = random.randbytes(random.randrange(20_000, 60_000))
        with lock:
            waiting.append(line)
        time.sleep(PACE * 0.1)


def write(file):
    global waiting
    while time.monotonic() < end:
        time.sleep(PACE * 6)
        with lock:
            lines, waiting = waiting, []
        file.seek(0)
        file.truncate()
        file.writelines(lines)


with tempfile.TemporaryFile() as file:
    threads = [threading.Thread(target=produce) for _ in range(5)]
    threads.append(threading.Thread(target=write, args=(file,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
