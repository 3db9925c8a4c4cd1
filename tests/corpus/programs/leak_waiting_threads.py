"""A thread for each connection that waits forever with its buffer. Memory: anonymous."""

import threading

from clock import steps

done = threading.Event()


def serve():
    buffer = bytearray(b"c") * (192 << 10)  # leak
    done.wait()
    return buffer


for _ in steps(0.2):
    threading.Thread(target=serve, daemon=True).start()
done.set()
