"""Builds a report of 20 MiB every three seconds, sends it, drops it."""

import io

from clock import steps

report = io.BytesIO()
for step in steps(0.1):
    report.write(b"line\n" * 140_000)
    if step % 30 == 29:
        report = io.BytesIO()
