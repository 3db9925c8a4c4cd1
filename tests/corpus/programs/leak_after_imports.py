"""Imports PyTorch, then remembers the parsed form of every message. Memory: anonymous."""
# needs: torch

import torch
from clock import steps

seen = {}


def parse(number):
    return torch.full((12_000,), float(number)).tolist()  # leak


for message in steps(0.25):
    seen[message] = parse(message)
