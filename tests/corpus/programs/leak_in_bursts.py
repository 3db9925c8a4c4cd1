"""Works for four seconds, rests for four, and keeps what it worked on. Memory: anonymous."""

from clock import steps

documents = []
for step in steps(0.1):
    if step % 80 < 40:
        documents.append(bytearray(b"o") * (200 << 10))  # leak
