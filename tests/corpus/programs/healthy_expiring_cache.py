"""Entries that expire after ten seconds."""

import collections

from clock import steps

entries = collections.deque()
for step in steps(0.1):
    entries.append((step, bytearray(b"e") * (500 << 10)))
    while entries and entries[0][0] < step - 100:
        entries.popleft()
