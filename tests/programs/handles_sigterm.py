"""Cleans up on SIGTERM and ends with 7: its own handler must still be called."""

import signal
import sys
import time


def on_term(_signal, _frame):
    print("cleaned up", flush=True)
    sys.exit(7)


signal.signal(signal.SIGTERM, on_term)
print("ready", flush=True)
time.sleep(60)
