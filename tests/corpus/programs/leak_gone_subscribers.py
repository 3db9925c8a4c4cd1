"""A chat whose guests come and go; the outboxes of those who left are still filled. Memory: anonymous."""

import asyncio
import random

from clock import SECONDS

random.seed(11)


class Room:
    def __init__(self):
        self.outboxes = {}

    def join(self, name):
        self.outboxes[name] = asyncio.Queue()
        return self.outboxes[name]

    def publish(self, text):
        for outbox in self.outboxes.values():
            outbox.put_nowait(text.encode() * 200)  # leak


async def person(room, name, end):
    inbox = room.join(name)
    leaves = min(end, asyncio.get_running_loop().time() + random.uniform(2, 6))
    while asyncio.get_running_loop().time() < leaves:
        while not inbox.empty():
            inbox.get_nowait()
        await asyncio.sleep(0.1)


async def main():
    room = Room()
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    people = set()
    number = 0
    while loop.time() < end:
        if len(people) < 12:
            number += 1
            task = asyncio.create_task(person(room, f"guest {number}", end))
            people.add(task)
            task.add_done_callback(people.discard)
        room.publish(f"message of guest {random.randrange(number)}; ")
        await asyncio.sleep(0.1)
    await asyncio.gather(*people)


asyncio.run(main())
