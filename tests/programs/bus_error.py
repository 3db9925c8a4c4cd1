"""A real SIGBUS: reads a mapped page that its file no longer has."""

import mmap
import tempfile
import time

with tempfile.TemporaryFile() as file:
    file.truncate(8192)
    data = mmap.mmap(file.fileno(), 8192)
    time.sleep(0.3)
    file.truncate(0)
    print(data[4096])
