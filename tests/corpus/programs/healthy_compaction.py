"""A table that grows for eight seconds and is then compacted to a tenth."""

from clock import steps

table = []
for step in steps(0.1):
    table.append(bytearray(b"c") * (700 << 10))
    if step % 80 == 79:
        table = table[-8:]
