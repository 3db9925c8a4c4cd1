"""A small transformer trained on random tokens: a GPU training loop to measure on. Prints its times as JSON.

`--calibrate` finds the batch for about 30 steps a second. `--batch 96 --batch 8` trains with these batches
on request: it reads lines of "BATCH STEPS" and answers each with the seconds of every step.
`--record` records itself; `--history alloc` has PyTorch record every allocation with its stack.
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
# Steps before the first measurement, and before each one.
WARM_UP, AGAIN = 20, 3
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


def measured(step: Callable[[], float], warm_up: int, steps: int) -> list[float]:
    """The seconds of each step after a warm-up."""
    for _ in range(warm_up):
        step()
    return [step() for _ in range(steps)]


def calibrate() -> dict[str, Any]:
    """The batch whose step takes about a thirtieth of a second.

    A small one takes what the host needs to launch it, so the way is up, until the device takes more.
    """
    at: dict[int, float] = {}
    for batch in (8, 16, 32, 64, 128, 256, 512):
        at[batch] = statistics.median(measured(trainer(batch), 4, 8))
        if at[batch] >= STEP_SECONDS:
            break
    upper, lower = batch, max(batch // 2, 8)
    each = (at[upper] - at[lower]) / (upper - lower) if upper > lower else 0.0
    found = upper if each <= 0 else round(upper - (at[upper] - STEP_SECONDS) / each)
    return {"batch": min(max(found, lower), upper), "seconds": at}


def serve(batches: list[int]) -> None:
    """Train on each request from standard input, until it is closed."""
    steps = {batch: trainer(batch) for batch in batches}
    for step in steps.values():
        measured(step, WARM_UP, 0)
    say({"ready": True, "recorded": is_recorded()})
    for line in sys.stdin:
        batch, count = map(int, line.split())
        say({"seconds": measured(steps[batch], AGAIN, count)})
    statistics_now = torch.cuda.memory_stats()
    say(
        {
            "peak": torch.cuda.max_memory_allocated(),
            "allocations": statistics_now["allocation.all.allocated"],
            "recorded": is_recorded(),
        }
    )


def is_recorded() -> bool:
    """Whether Stormlog has this device under its eyes."""
    auto: Any = sys.modules.get("stormlog.auto")
    return auto is not None and bool(auto.is_recording())


def say(found: dict[str, Any]) -> None:
    """A line, at once."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main() -> None:
    """One of the two ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, action="append", default=[])
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--history", choices=("alloc", "all"))
    asked = parser.parse_args()
    if asked.history:
        torch.cuda.memory._record_memory_history(context=asked.history, stacks="python")
    if asked.record:
        import_module("stormlog.auto")
    if asked.calibrate:
        say(calibrate())
    else:
        serve(asked.batch or [8])


if __name__ == "__main__":
    main()
