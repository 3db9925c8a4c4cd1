"""Grows by a megabyte every few milliseconds until something stops it; never past 400 MB."""

import time

held = []
for _ in range(400):
    held.append(b"x" * (1 << 20))
    time.sleep(0.005)
raise SystemExit("nothing stopped me")
