"""A small transformer trained on random tokens: a GPU training loop to measure on. Prints its times as JSON.

`--batch 8 --steps 150` is the bare loop, or whatever is recorded around it; `--calibrate` finds the batch for
about 30 steps a second; `--batch 8 --alternate 8` runs blocks without and with recording in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")

WORDS, LENGTH, WIDTH, LAYERS = 8192, 256, 768, 8
WARM_UP = 20
STEP_SECONDS = 1 / 30


class Model(torch.nn.Module):  # type: ignore[misc]
    """Embedding, encoder layers, and a head over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        layers = [
            torch.nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        ]
        self.layers = torch.nn.ModuleList(layers)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Any) -> Any:
        """Scores of the next word."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def trainer(batch: int) -> Callable[[], float]:
    """A step that waits for the device, as logging a loss does, and says how long it took."""
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(WORDS, (batch, LENGTH), device="cuda")

    def step() -> float:
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = model(tokens)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        loss.item()
        return time.perf_counter() - started

    return step


def measured(step: Callable[[], float], steps: int) -> list[float]:
    """So many steps after a warm-up."""
    for _ in range(WARM_UP):
        step()
    return [step() for _ in range(steps)]


def calibrate() -> dict[str, Any]:
    """The batch whose step takes about a thirtieth of a second."""
    at = {batch: statistics.median(measured(trainer(batch), 10)) for batch in (8, 32)}
    each = max((at[32] - at[8]) / 24, 1e-6)
    batch = round(8 + (STEP_SECONDS - at[8]) / each)
    return {"batch": min(max(batch, 1), 512), "seconds": at}


def alternate(batch: int, pairs: int, steps: int) -> dict[str, Any]:
    """Blocks of steps in one process, recording switched off and on in turn."""
    auto: Any = import_module("stormlog.auto")
    step = trainer(batch)
    measured(step, 10)
    off: list[float] = []
    on: list[float] = []
    for _ in range(pairs):
        auto.stop()
        step()
        off.append(statistics.median(step() for _ in range(steps)))
        auto.start()
        while not auto.is_recording():
            step()
        on.append(statistics.median(step() for _ in range(steps)))
    ratios = [with_it / without for with_it, without in zip(on, off, strict=True)]
    return {"off": off, "on": on, "ratio_median": statistics.median(ratios), "ratios": ratios}


def main() -> None:
    """One of the three ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--alternate", type=int, default=0)
    asked = parser.parse_args()
    if asked.calibrate:
        found = calibrate()
    elif asked.alternate:
        import_module("stormlog.auto")
        found = alternate(asked.batch, asked.alternate, asked.steps)
    else:
        times = measured(trainer(asked.batch), asked.steps)
        found = {
            "median": statistics.median(times),
            "mean": statistics.fmean(times),
            "peak": torch.cuda.max_memory_allocated(),
            "recorded": "stormlog._auto" in sys.modules,
        }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
