"""Cycles that the collector finds, and a registry that it cannot free. Memory: anonymous."""

from clock import steps

registry = []


class Node:
    def __init__(self):
        self.payload = bytearray(b"n") * (64 << 10)
        self.own = self


def register():
    registry.append(bytearray(b"r") * (80 << 10))  # leak


for _ in steps(0.1):
    for _ in range(8):
        Node()
    register()
