"""A server that sends a stream to clients that come and go; slow ones have a bounded backlog."""

import asyncio
import random

from clock import SECONDS

random.seed(9)
backlogs = {}


async def serve(reader, writer):
    backlog = backlogs[writer] = asyncio.Queue(maxsize=40)
    try:
        while True:
            writer.write(await backlog.get())
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        del backlogs[writer]
        writer.close()


async def client(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(random.randrange(10, 200)):
        await reader.read(1 << 16)
        await asyncio.sleep(random.choice([0.02, 0.05, 0.3]))
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    clients = set()
    while loop.time() < end:
        if random.random() < 0.2 and len(clients) < 25:
            task = asyncio.create_task(client(port))
            clients.add(task)
            task.add_done_callback(clients.discard)
        frame = random.randbytes(30_000)
        for backlog in list(backlogs.values()):
            if not backlog.full():
                backlog.put_nowait(frame)
        await asyncio.sleep(0.1)
    for task in clients:
        task.cancel()


asyncio.run(main())
