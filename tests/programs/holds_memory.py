"""Holds some memory and waits: to be ended from outside. Prints a line when it is ready."""

import sys
import time

held = bytearray(30 << 20)
held[::4096] = b"x" * len(held[::4096])
print("ready", flush=True)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
