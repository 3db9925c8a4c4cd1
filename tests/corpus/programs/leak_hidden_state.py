"""A recurrent network whose hidden state is never detached. Memory: anonymous."""
# needs: torch

import torch
from clock import steps

torch.set_num_threads(1)
cell = torch.nn.RNNCell(128, 256)
hidden = torch.zeros(32, 256)
for _ in steps(0.1):
    hidden = cell(torch.randn(32, 128), hidden)  # leak
