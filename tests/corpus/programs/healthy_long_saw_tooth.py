"""A memtable that is flushed every twenty-two seconds."""

from clock import steps

table = []
for step in steps(0.1):
    table.append(bytearray(b"m") * (300 << 10))
    if step % 220 == 219:
        table.clear()
