"""The producer is faster than the consumer and the queue has no bound. Memory: anonymous."""

import queue
import threading

from clock import steps

jobs = queue.Queue()


def consume():
    while True:
        if jobs.get() is None:
            return
        threading.Event().wait(0.25)


consumer = threading.Thread(target=consume, daemon=True)
consumer.start()
for _step in steps(0.08):
    jobs.put(bytearray(b"j") * (120 << 10))  # leak
