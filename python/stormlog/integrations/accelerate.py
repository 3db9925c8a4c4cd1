"""Accelerate: `Accelerator(log_with=StormlogTracker())` and `accelerator.init_trackers("name")`.

A step ends where the optimizer makes one; `accelerator.log` adds its numbers to the recording and
`accelerator.end_training` ends it. `with tracker.recorder.capture_oom():` around the loop records an error
that the program catches; one that ends it is recorded anyway.
"""

from __future__ import annotations

from typing import Any

from stormlog.integrations._optional import framework, lazily
from stormlog.integrations._steps import OptimizerSteps
from stormlog.integrations._trainer import OnForecast, TrainerRecorder


def _tracker() -> Any:
    base: Any = framework("accelerate.tracking", "accelerate").GeneralTracker

    class StormlogTracker(base):  # type: ignore[misc]
        """Records a training of an `Accelerator`, in each of its processes."""

        name = "stormlog"
        requires_logging_directory = False
        main_process_only = False

        def __init__(self, *, on_forecast: OnForecast = None, **options: Any) -> None:
            super().__init__()
            self.recorder = TrainerRecorder(on_forecast=on_forecast, **options)
            self.steps = OptimizerSteps(self.recorder)

        @property
        def tracker(self) -> TrainerRecorder:
            """The recorder that receives phases, steps and peaks."""
            return self.recorder

        @property
        def should_stop(self) -> bool:
            """Whether a forecast asks the loop to end."""
            return self.recorder.should_stop

        def start(self) -> None:
            """Begin recording; called by `init_trackers`."""
            self._begin()

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            """Begin recording; the configuration itself is not kept."""
            self._begin()

        def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
            """Add the numbers of `accelerator.log` to the recording."""
            self.recorder.note({**values, "step": self.recorder.step if step is None else step})

        def finish(self) -> None:
            """End the recording; called by `end_training`."""
            self.steps.stop()
            self.recorder.end()

        def _begin(self) -> None:
            self.recorder.begin()
            self.steps.count()

    return StormlogTracker


__getattr__ = lazily(globals(), {"StormlogTracker": _tracker})
