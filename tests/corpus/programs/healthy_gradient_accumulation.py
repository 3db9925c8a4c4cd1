"""Gradients of eight micro-batches are accumulated; every fourth step is validated on a large batch."""
# needs: torch

import torch
from clock import steps

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 256))
optimizer = torch.optim.Adam(model.parameters())
best = float("inf")
for step in steps(0.12):
    batch = torch.randn(64, 256)
    (torch.nn.functional.mse_loss(model(batch), batch) / 8).backward()
    if step % 8 == 7:
        optimizer.step()
        optimizer.zero_grad()
    if step % 32 == 31:
        with torch.no_grad():
            held_out = torch.randn(4096, 256)
            best = min(best, torch.nn.functional.mse_loss(model(held_out), held_out).item())
