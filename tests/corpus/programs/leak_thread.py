"""A thread that records what it sees; nothing reads it. Memory: anonymous."""

import threading

from clock import steps

frames = []


def capture():
    for number in steps(0.1):
        frames.append(bytes([number % 256]) * (100 << 10))  # leak


thread = threading.Thread(target=capture)
thread.start()
thread.join()
