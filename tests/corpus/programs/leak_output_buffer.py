"""Writes a report into memory that is never written out. Memory: anonymous."""

import io

from clock import steps

report = io.BytesIO()
line = b"x" * (90 << 10)
for _ in steps(0.1):
    report.write(line)  # leak
