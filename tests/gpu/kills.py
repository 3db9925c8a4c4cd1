"""Trainings killed at random moments: who holds GPU memory at death is what the program last counted.

`python tests/gpu/kills.py [KILLS]` needs a CUDA device and PyTorch. A server that has imported PyTorch, but
has not touched the device, forks the programs (several at a time) and kills them with SIGKILL. Each counts
its own bytes by line in a mapped file, before and after every change, so that what was in flight is known
too. Exits with 1 when a capture disagrees.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

STORMLOG = [sys.executable, "-m", "stormlog"]
AT_ONCE = 8
# Of large blocks the allocator gives what is left over along, if it is 1 MiB or less; of these none is.
LARGE = 2 << 20
# What `keep_small` and `keep_large` hold now, and after the change in progress (the same when there is none).
COUNTS = struct.Struct("<QQQQ")
# In the mapped file: whether the training has begun, which of the two places holds the counts, and those.
READY, TURN, PLACES = 0, 1, (64, 128)


def keep_small(torch: Any, held: list[Any], count: int) -> int:
    held.append(torch.empty(count * 512, dtype=torch.uint8, device="cuda"))
    return count * 512


def keep_large(torch: Any, held: list[Any], count: int) -> int:
    held.append(torch.empty(count * LARGE, dtype=torch.uint8, device="cuda"))
    return count * LARGE


def train(torch: Any, counts: mmap.mmap) -> None:
    """Steps of a small model, with blocks that two lines keep and drop, until it is killed."""
    chance = random.Random(os.getpid())
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held: tuple[list[Any], list[Any]] = ([], [])
    sizes: tuple[list[int], list[int]] = ([], [])
    ways = (keep_small, keep_large)

    turn = 0

    def write(now: list[int], then: list[int]) -> None:
        # Into the place that is not read, then one byte: a kill in between leaves the last whole counts.
        nonlocal turn
        turn = 1 - turn
        COUNTS.pack_into(counts, PLACES[turn], *now, *then)
        counts[TURN] = turn

    now = [0, 0]
    write(now, now)
    counts[READY] = 1
    while True:
        which = chance.randrange(2)
        if len(held[which]) < 40 and chance.random() < 0.6:
            size = chance.randrange(1, 8)
            then = list(now)
            then[which] += size * (512, LARGE)[which]
            write(now, then)
            sizes[which].append(ways[which](torch, held[which], size))
        elif held[which]:
            place = chance.randrange(len(held[which]))
            then = list(now)
            then[which] -= sizes[which].pop(place)
            write(now, then)
            held[which].pop(place)
        else:
            continue
        now = then
        write(now, now)
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(64, 256, device="cuda")).sum().backward()
        optimizer.step()


def serve(kills: int, folder: Path) -> None:
    """Forks and kills the given number of trainings."""
    torch: Any = import_module("torch")
    assert not torch.cuda.is_initialized()
    chance = random.Random(1)
    left = kills
    living: dict[int, tuple[mmap.mmap, float]] = {}
    while left or living:
        while left and len(living) < AT_ONCE:
            left -= 1
            path = folder / f"counts-{left}"
            path.write_bytes(bytes(4096))
            with path.open("r+b") as file:
                counts = mmap.mmap(file.fileno(), 4096)
            child = os.fork()
            if child == 0:
                path.rename(folder / f"counts-of-{os.getpid()}")
                train(torch, counts)
            living[child] = (counts, 0.0)
        for child, (counts, when) in list(living.items()):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), f"{child} ended by itself"
            if not when and counts[READY]:
                living[child] = (counts, time.monotonic() + chance.uniform(0.0, 1.0))
            elif when and time.monotonic() >= when:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del living[child]
        time.sleep(0.001)


def held_by_function(run: Path, pid: str) -> dict[str, int]:
    """Bytes on the device at death by the function that asked for them."""
    words = [*STORMLOG, "table", str(run), "--pid", pid, "--memory", "cuda:0", "--at-death", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = {}
    for row in json.loads(done.stdout):
        stack = row["stack"]
        function = stack[0]["function"] if stack else ""
        found[function] = found.get(function, 0) + row["own_bytes"]
    return found


def main(kills: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [*STORMLOG, "run", "--quiet", "--wait", "--dir", str(folder / "runs"), "--"]
        program = [sys.executable, __file__, "--serve", str(kills), str(folder)]
        done = subprocess.run([*words, *program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        checked = wrong = 0
        (run,) = (folder / "runs").iterdir()
        for path in sorted(folder.glob("counts-of-*")):
            pid = path.name.removeprefix("counts-of-")
            page = path.read_bytes()
            now_small, now_large, then_small, then_large = COUNTS.unpack_from(page, PLACES[page[TURN]])
            found = held_by_function(run, pid)
            small, large = found.get("keep_small", 0), found.get("keep_large", 0)
            checked += 1
            if small not in (now_small, then_small) or large not in (now_large, then_large):
                wrong += 1
                sys.stdout.write(
                    f"{pid}: small {small}, counted {now_small} or {then_small};"
                    f" large {large}, counted {now_large} or {then_large}\n"
                )
        sys.stdout.write(f"{checked} killed, {wrong} captures disagree\n")
        return 0 if checked == kills and not wrong else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
