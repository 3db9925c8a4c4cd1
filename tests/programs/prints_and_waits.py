"""Prints, holds memory, waits for a file or for Ctrl-C, which it counts; says how it went; ends with 7."""

import os
import signal
import sys
import time
from pathlib import Path

held: list[bytearray] = []
interrupts: list[int] = []


def hold() -> None:
    held.append(bytearray(32 << 20))


signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
print("stdin is a terminal:", os.isatty(0), "stdout:", os.isatty(1))
for number in range(40):
    print("line", number)
print("to stderr", file=sys.stderr)
hold()
print("holding")
while not interrupts and not Path(sys.argv[1]).exists():
    time.sleep(0.05)
# A second Ctrl-C would come within this.
time.sleep(0.3)
print("interrupts:", len(interrupts))
sys.exit(7)
