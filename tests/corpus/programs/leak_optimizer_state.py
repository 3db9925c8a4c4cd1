"""Adds a parameter group for each task and never removes one. Memory: anonymous."""
# needs: torch

import torch
from clock import steps

torch.set_num_threads(1)
tasks = []
for _ in steps(0.2):
    head = torch.nn.Linear(256, 64)  # leak
    optimizer = torch.optim.Adam(head.parameters())
    head(torch.ones(4, 256)).sum().backward()  # leak
    optimizer.step()  # leak
    tasks.append((head, optimizer))
