"""Epochs over a data set in PyTorch's loader with two worker processes, and a scheduler."""
# needs: torch

import time

import torch
from clock import SECONDS

torch.manual_seed(0)
torch.set_num_threads(1)


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.full((3, 64, 64), float(index)), index % 10


def train(end):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten()
    )
    head = torch.nn.Linear(512, 10)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = torch.utils.data.DataLoader(Images(), batch_size=16, num_workers=2, shuffle=True)
    while time.monotonic() < end:
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(head(model(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


if __name__ == "__main__":
    train(time.monotonic() + SECONDS)
