"""Training with a validation that keeps its logits until it has its metric."""
# needs: torch

import torch
from clock import steps

torch.set_num_threads(1)
model = torch.nn.Linear(512, 512)
logits = []
with torch.no_grad():
    for step in steps(0.1):
        out = model(torch.randn(256, 512))
        if step % 100 > 60:
            logits.append(out)
        elif logits:
            torch.cat(logits).argmax(dim=1)
            logits.clear()
