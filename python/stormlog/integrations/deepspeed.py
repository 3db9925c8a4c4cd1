"""DeepSpeed: `attach(engine)` after `deepspeed.initialize`.

A step is one `engine.step()` that the optimizer made (gradient accumulation is part of it), with forward and
backward as phases. Parameters, gradients and optimizer state are recorded as the partitions that this rank
holds (ZeRO 1, 2 and 3). `recorder.end()` ends the recording; the end of the program does it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stormlog.integrations._shards import sharded_categories
from stormlog.integrations._trainer import OnForecast, TrainerRecorder

__all__ = ["attach", "sharded_categories"]


def attach(engine: Any, *, on_forecast: OnForecast = None, **options: Any) -> TrainerRecorder:
    """Record the training of an engine; what records it."""
    recorder = TrainerRecorder(on_forecast=on_forecast, **options)
    recorder.begin()
    recorder.begin_step(int(engine.global_steps))
    engine.forward = _in_phase(recorder, engine.forward, "forward")
    engine.backward = _in_phase(recorder, engine.backward, "backward")
    step = engine.step

    @functools.wraps(step)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        before = int(engine.global_steps)
        with recorder.phase("optimizer step"), recorder.capture_oom():
            result = step(*args, **kwargs)
        if int(engine.global_steps) != before:
            if before == 0:
                recorder.shards(engine.module, engine.optimizer)
            recorder.end_step()
            recorder.begin_step(int(engine.global_steps))
        return result

    engine.step = stepped
    return recorder


def _in_phase(recorder: TrainerRecorder, call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with recorder.phase(name), recorder.capture_oom():
            return call(*args, **kwargs)

    return wrapped
