"""Imports PyTorch and waits."""
# needs: torch

import torch
from clock import steps

for _ in steps(0.5):
    torch.ones(10).sum()
