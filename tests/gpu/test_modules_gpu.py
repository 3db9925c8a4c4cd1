"""`ModuleMemory` on a real CUDA device, against sizes computed by hand.

Sizes are whole multiples of 2 MiB. Without pytest: `python tests/gpu/plain.py tests/gpu/test_modules_gpu.py`.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stormlog.module_memory import ModuleMemory

# Without PyTorch the tests are skipped.
torch: Any = import_module("torch") if find_spec("torch") else None

MB = 1 << 20
ROWS, WIDTH = 2048, 1024
ACTIVATION, WEIGHT = ROWS * WIDTH * 4, WIDTH * WIDTH * 4


def test_training_step_is_reported_by_category_and_module() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(ROWS, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).sum().backward()
        optimizer.step()

    step()  # workspaces are there afterwards
    torch.cuda.synchronize()
    with ModuleMemory(model, optimizer) as memory:
        step()
        step()
    report = memory.report()
    sys.stdout.write(f"{report['peak']}\n")
    phases = report["phases"]
    for phase in phases.values():
        assert sum(phase["categories"].values()) == phase["peak_bytes"], phase
    forward = phases["forward"]["categories"]
    assert forward["parameters"] == 4 * WEIGHT and forward["inputs"] == ACTIVATION
    assert forward["activations"] == 4 * ACTIVATION, "each layer's output"
    assert 8 * WEIGHT <= forward["optimizer_state"] < 8 * WEIGHT + MB
    assert phases["backward"]["categories"]["gradients"] == 4 * WEIGHT
    rows = {row["name"]: row for row in report["modules"]}
    assert [rows[name]["kept_bytes"] for name in "0123"] == [ACTIVATION] * 4
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    by_hand = torch.cuda.max_memory_allocated()
    assert report["peak"]["peak_bytes"] == by_hand, (report["peak"]["peak_bytes"], by_hand)
