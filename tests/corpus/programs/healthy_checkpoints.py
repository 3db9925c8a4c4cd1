"""Training that writes a checkpoint into memory every seven seconds and drops it."""
# needs: torch

import io

import torch
from clock import steps

torch.set_num_threads(1)
model = torch.nn.Linear(2048, 2048)
for step in steps(0.1):
    with torch.no_grad():
        model(torch.randn(8, 2048))
    if step % 70 == 40:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        del file
