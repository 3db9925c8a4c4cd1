"""FSDP2 (`fully_shard`), in a loop of one's own.

    with StormlogRecorder(model, optimizer) as recorder:
        for batch in batches:
            ...

A step ends where the optimizer makes one. Parameters, gradients and optimizer state are recorded as the
shards that this rank holds: after the first step, and after each epoch.
"""

from __future__ import annotations

from typing import Any, Self

from stormlog.integrations._shards import sharded_categories
from stormlog.integrations._steps import OptimizerSteps, optimizer_module
from stormlog.integrations._trainer import OnForecast, TrainerRecorder

__all__ = ["StormlogRecorder", "sharded_categories"]


class StormlogRecorder(TrainerRecorder):
    """Records the training of a sharded model, in each of its ranks."""

    def __init__(
        self, model: Any, optimizer: Any = None, *, on_forecast: OnForecast = None, **options: Any
    ) -> None:
        super().__init__(on_forecast=on_forecast, **options)
        self._model = model
        self._optimizer = optimizer
        self._steps = OptimizerSteps(self)

    def __enter__(self) -> Self:
        # Before anything is started that would be left running.
        optimizer_module()
        super().__enter__()
        self._steps.count()
        return self

    def end_step(self) -> None:
        """The step has ended; the first one shows what the optimizer keeps."""
        if self.step == 0:
            self.record_categories()
        super().end_step()

    def end_epoch(self) -> None:
        """End the open epoch and its phase."""
        self.record_categories()
        super().end_epoch()

    def record_categories(self) -> None:
        """Record what this rank holds now."""
        self.shards(self._model, self._optimizer)

    def end(self) -> None:
        """End the open step and epoch, and the session."""
        self._steps.stop()
        super().end()
