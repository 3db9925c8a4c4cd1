import torch
from torch.profiler import profile, ProfilerActivity
def keep(list, n):
    list.append(torch.empty(n, dtype=torch.uint8))
def step(list):
    x = torch.ones(256, 256)
    for _ in range(3):
        y = x @ x
    keep(list, 1 << 20)
    return y
def main():
    kept = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True) as prof:
        for _ in range(4):
            step(kept)
    prof.export_chrome_trace("/tmp/demo/kineto-cpu.json")
main()
