"""Appends every batch's logits to a list for a metric at the end. Memory: anonymous."""
# needs: torch

import torch
from clock import steps

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
kept = []
with torch.no_grad():
    for _ in steps(0.1):
        kept.append(model(torch.ones(128, 64)).float())  # leak
