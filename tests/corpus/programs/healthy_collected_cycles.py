"""Cycles that the garbage collector finds."""

from clock import steps


class Node:
    def __init__(self):
        self.payload = bytearray(b"n") * (64 << 10)
        self.own = self


for _ in steps(0.1):
    for _ in range(8):
        Node()
