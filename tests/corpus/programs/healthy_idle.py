"""Waits."""

from clock import steps

for _ in steps(0.5):
    pass
