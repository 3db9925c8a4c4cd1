"""A hook that was put in to look at the activations of one layer, and stayed. Memory: anonymous."""
# needs: torch

import torch
from clock import steps

torch.manual_seed(0)
torch.set_num_threads(1)


class Spy:
    def __init__(self, layer):
        self.seen = []
        layer.register_forward_hook(self.look)

    def look(self, module, inputs, output):
        self.seen.append(output.detach().clone())  # leak


encoder = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 64))
spy = Spy(encoder[1])
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
for _ in steps(0.15):
    batch = torch.randn(48, 64)
    loss = torch.nn.functional.mse_loss(encoder(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
