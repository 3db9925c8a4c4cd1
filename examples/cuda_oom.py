"""Evaluates without no_grad() and keeps each loss, and with it the graph of its batch: CUDA out of memory.

Usage: stormlog run examples/cuda_oom.py
It may use 4 GiB of the GPU and writes cuda_oom.pickle. Without a GPU it evaluates two batches and ends.
"""

from __future__ import annotations

import torch
from torch import nn

LIMIT = 4 << 30
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
ROWS = 16384 if CUDA else 64


def build() -> nn.Module:
    block = [nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)]
    return nn.Sequential(*block, *(nn.Linear(1024, 1024) for _ in range(4))).to(DEVICE)


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.randn(ROWS // 16, 1024, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def evaluate(model: nn.Module, batches: int) -> list[torch.Tensor]:
    losses = []
    for _ in range(batches):
        loss = model(torch.randn(ROWS, 1024, device=DEVICE)).square().mean()
        losses.append(loss)
    return losses


def main() -> None:
    if CUDA:
        total = torch.cuda.get_device_properties(DEVICE).total_memory
        torch.cuda.set_per_process_memory_fraction(LIMIT / total)
        torch.cuda.memory._record_memory_history(stacks="python")
    model = build()
    train(model, 4)
    try:
        evaluate(model, 1000 if CUDA else 2)
    finally:
        if CUDA:
            torch.cuda.memory._dump_snapshot("cuda_oom.pickle")


if __name__ == "__main__":
    main()
    if not CUDA:
        print("No GPU. Follow with its snapshot: stormlog snapshot examples/recorded/cuda_oom.pickle.gz")
