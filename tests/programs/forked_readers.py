"""Forks three workers that read the same objects again and again, which copies the pages they are on."""

import os
import time

items = [(number, str(number)) for number in range(500_000)]
workers = []
for _ in range(3):
    worker = os.fork()
    if worker == 0:
        for _ in range(4):
            total = sum(number for number, _ in items)
            time.sleep(1.5)
        os._exit(0)
    workers.append(worker)
for worker in workers:
    os.waitpid(worker, 0)
