"""Tasks that wait for an answer that never comes, each with its request. Memory: anonymous."""

import asyncio

from clock import SECONDS

waiting = set()


async def ask():
    request = bytearray(b"q") * (100 << 10)  # leak
    await asyncio.Event().wait()
    return request


async def main():
    end = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < end:
        waiting.add(asyncio.create_task(ask()))
        await asyncio.sleep(0.1)


asyncio.run(main())
