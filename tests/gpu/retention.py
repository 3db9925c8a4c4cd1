"""What keeps CUDA memory when PyTorch runs out of it: `stormlog run -- python retention.py` on a GPU.

Keeps logits in a module's list and losses with their graphs in a local, until the allocator raises.
"""

import torch

KEPT = []


def evaluate(model: torch.nn.Module) -> None:
    for _ in range(40):
        KEPT.append(model(torch.randn(4096, 2048, device="cuda")).detach())


def train(model: torch.nn.Module) -> None:
    losses = []
    while True:
        losses.append(model(torch.randn(4096, 2048, device="cuda")).square().mean())


def main() -> None:
    torch.cuda.set_per_process_memory_fraction(8 / 140)
    model = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 2048))
    model = model.cuda()
    evaluate(model)
    train(model)


if __name__ == "__main__":
    main()
