"""Counts signals with handlers of its own while threads allocate, and ends with the number it got."""

import signal
import sys
import threading
import time

seen = []
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, lambda number, _frame: seen.append(number))


def allocate():
    while len(seen) < 4:
        bytearray(1 << 20)
        time.sleep(0.001)


threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
print("ready", flush=True)
end = time.monotonic() + 30
while len(set(seen)) < 4 and time.monotonic() < end:
    time.sleep(0.01)
seen.extend([0] * 4)
for thread in threads:
    thread.join()
sys.exit(len(set(seen) - {0}))
