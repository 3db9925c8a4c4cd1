"""Cycles of nodes with payloads, and the collector switched off for speed. Memory: anonymous."""

import gc

from clock import steps

gc.disable()


class Node:
    def __init__(self):
        self.payload = bytearray(b"n") * (90 << 10)  # leak
        self.own = self


for _ in steps(0.1):
    Node()
