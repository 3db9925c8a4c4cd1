"""Fifty requests at a time, each done within two seconds."""

import asyncio
import random

from clock import SECONDS

random.seed(7)
running = set()


async def handle():
    request = bytearray(b"q") * (300 << 10)
    await asyncio.sleep(random.uniform(0.2, 2.0))
    return len(request)


async def main():
    end = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < end:
        for _ in range(3):
            task = asyncio.create_task(handle())
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(0.1)


asyncio.run(main())
