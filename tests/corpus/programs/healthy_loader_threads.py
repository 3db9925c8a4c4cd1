"""A loader with a bounded queue between its thread and the consumer."""

import queue
import threading

from clock import steps

batches = queue.Queue(maxsize=8)


def load():
    for number in steps(0.05):
        batches.put(bytearray(b"b") * (2 << 20))
        if number < 0:
            break
    batches.put(None)


threading.Thread(target=load, daemon=True).start()
for _ in steps(0.06):
    if batches.get() is None:
        break
