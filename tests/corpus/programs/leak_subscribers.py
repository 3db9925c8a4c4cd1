"""Widgets subscribe to a signal and never leave it. Memory: anonymous."""

from clock import steps

subscribers = []


class Widget:
    def __init__(self):
        self.pixels = bytearray(b"p") * (90 << 10)  # leak
        subscribers.append(self.refresh)

    def refresh(self):
        return len(self.pixels)


for _ in steps(0.1):
    Widget().refresh()
