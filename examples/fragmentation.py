"""Serves sequences of different lengths and copies each cache to grow it: free memory is in pieces.

Usage: stormlog run --torch-history segments examples/fragmentation.py
It may use 2 GiB of the GPU, and leaves PyTorch's own history in fragmentation.pickle.
Without a GPU it serves two sequences and ends.
"""

from __future__ import annotations

import random

import torch

LIMIT = 2 << 30
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
ROW = 64 << 10


class Sequence:
    """One request: a cache that grows by some rows a step."""

    def __init__(self, rows: int) -> None:
        self.cache = torch.empty(rows, ROW, dtype=torch.uint8, device=DEVICE)

    def grow(self, rows: int) -> None:
        new = torch.empty(rows, ROW, dtype=torch.uint8, device=DEVICE)
        self.cache = torch.cat([self.cache, new])


def serve(steps: int, live: int) -> None:
    chance = random.Random(7)
    sequences = [Sequence(chance.randint(16, 400)) for _ in range(live)]
    for _ in range(steps):
        number = chance.randrange(live)
        if sequences[number].cache.shape[0] > 700:
            sequences[number] = Sequence(chance.randint(16, 400))
        sequences[number].grow(chance.randint(8, 64))


def main() -> None:
    if CUDA:
        total = torch.cuda.get_device_properties(DEVICE).total_memory
        torch.cuda.set_per_process_memory_fraction(LIMIT / total)
        torch.cuda.memory._record_memory_history(stacks="python")
    try:
        serve(1500 if CUDA else 20, 45 if CUDA else 2)
    finally:
        if CUDA:
            torch.cuda.memory._dump_snapshot("fragmentation.pickle")
            print(f"{torch.cuda.memory_stats()['num_alloc_retries']} retries")


if __name__ == "__main__":
    main()
    if not CUDA:
        print("No GPU. Follow with its snapshot: stormlog snapshot examples/recorded/fragmentation.pickle.gz")
