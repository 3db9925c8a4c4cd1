"""Sums losses as tensors, so that every step's graph stays. Memory: anonymous."""
# needs: torch

import torch
from clock import steps

torch.set_num_threads(1)
layer = torch.nn.Linear(256, 256)
total = torch.zeros(())
for _ in steps(0.1):
    batch = torch.randn(64, 256)
    hidden = torch.tanh(layer(batch))  # leak
    total = total + hidden.square().mean()  # leak
