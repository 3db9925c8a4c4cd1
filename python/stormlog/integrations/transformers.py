"""Transformers: `attach(trainer)`, or `Trainer(callbacks=[StormlogCallback()])`.

Phases by epoch and step, the peak of each step, and a stop before memory runs out (`on_forecast="stop"`).
`Trainer` does not report exceptions to its callbacks: `attach` also sees those of `trainer.train()`, and a
callback alone those that end the program.
"""

from __future__ import annotations

import functools
from typing import Any

from stormlog.integrations._optional import framework, lazily
from stormlog.integrations._trainer import OnForecast, TrainerRecorder


def _callback() -> Any:
    base: Any = framework("transformers", "transformers").TrainerCallback

    class StormlogCallback(base):  # type: ignore[misc]
        """Records a training of `transformers.Trainer`."""

        def __init__(self, *, on_forecast: OnForecast = None, **options: Any) -> None:
            super().__init__()
            self.recorder = TrainerRecorder(on_forecast=on_forecast, **options)

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Begin recording."""
            self.recorder.begin()

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Begin an epoch."""
            self.recorder.begin_epoch(int(state.epoch or 0))

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Begin a step."""
            self.recorder.begin_step(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """End the step; stop the trainer if a forecast asks for it."""
            self.recorder.end_step()
            control.should_training_stop |= self.recorder.should_stop
            return control

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """End the epoch."""
            self.recorder.end_epoch()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """End the recording."""
            self.recorder.end()

    return StormlogCallback


def attach(trainer: Any, **options: Any) -> Any:
    """Add the callback to a trainer and record an out-of-memory error of its training; the callback."""
    callback = __getattr__("StormlogCallback")(**options)
    trainer.add_callback(callback)
    step, train = trainer.training_step, trainer.train

    @functools.wraps(step)
    def training_step(*args: Any, **kwargs: Any) -> Any:
        with callback.recorder.capture_oom():
            return step(*args, **kwargs)

    @functools.wraps(train)
    def train_recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        except BaseException as error:
            # Of the optimizer's step, a callback, an evaluation. The trainer calls no `on_train_end` then.
            callback.recorder.failed(error)
            callback.recorder.end()
            raise

    # `auto_find_batch_size` catches the errors of a step inside of `train`, and tries again.
    trainer.training_step, trainer.train = training_step, train_recorded
    return callback


__getattr__ = lazily(globals(), {"StormlogCallback": _callback})
