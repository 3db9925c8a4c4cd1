"""A tour of the Python API for PyTorch: what a call, a block and a training took, over time, with alerts.

Usage: python examples/gpumemprof_tour.py
Runs on a GPU where there is one, else on the CPU.
"""

from __future__ import annotations

import torch
from gpumemprof import (
    CPUMemoryTracker,
    GPUMemoryProfiler,
    MemoryTracker,
    MemoryVisualizer,
    format_memory,
    get_system_info,
)

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(256, 1024, device=DEVICE)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    print("backend:", get_system_info()["detected_backend"])
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
    model.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())

    # One call, then one block.
    profiler = GPUMemoryProfiler(device=DEVICE)
    result = profiler.profile_function(step, model, optimizer)
    print("first step:", format_memory(result.peak_memory_usage()))
    with profiler.profile_context("ten steps"):
        for _ in range(10):
            step(model, optimizer)
    for name, row in profiler.get_summary()["function_summaries"].items():
        print(f"{name}: peak {format_memory(row['peak_memory'])}")

    # Over time, with phases and a file to analyze afterwards.
    tracker = MemoryTracker(device=0, sampling_interval=0.02) if CUDA else CPUMemoryTracker(0.02)
    with tracker:
        for _ in range(20):
            step(model, optimizer)
    tracker.export_events("tour.json", format="json")
    print(f"{len(tracker.get_events())} events: gpumemprof analyze tour.json")

    MemoryVisualizer(profiler).plot_memory_timeline(save_path="tour.png")
    print("memory over time: tour.png")


if __name__ == "__main__":
    main()
