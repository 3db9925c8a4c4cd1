"""Lightning: `Trainer(callbacks=[StormlogCallback()])`, of `lightning` or of `pytorch_lightning` alone.

Phases by epoch and step, the peak of each step, a bundle that names both when memory runs out, and a stop
before it does (`on_forecast="stop"`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stormlog.integrations._optional import framework, lazily
from stormlog.integrations._trainer import OnForecast, TrainerRecorder


def _callbacks() -> Any:
    """Lightning's module of callbacks; that of its older distribution where only that is installed."""
    try:
        return framework("lightning.pytorch.callbacks", "lightning")
    except ImportError as missing:
        try:
            return import_module("pytorch_lightning.callbacks")
        except ImportError:
            raise missing from None


def _callback() -> Any:
    base: Any = _callbacks().Callback

    class StormlogCallback(base):  # type: ignore[misc]
        """Records a training of Lightning."""

        def __init__(self, *, on_forecast: OnForecast = None, **options: Any) -> None:
            super().__init__()
            self.recorder = TrainerRecorder(on_forecast=on_forecast, name="fit", **options)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Begin recording."""
            self.recorder.begin()

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            """Begin an epoch."""
            self.recorder.begin_epoch(trainer.current_epoch)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            """Begin a step."""
            self.recorder.begin_step(batch_idx)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            """End the step; stop the trainer if a forecast asks for it."""
            self.recorder.end_step()
            trainer.should_stop |= self.recorder.should_stop

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            """End the epoch."""
            self.recorder.end_epoch()

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            """Begin the phase `validation`."""
            self.recorder._enter_quietly("validation")

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            """End the phase `validation`."""
            self.recorder._leave_quietly("validation")

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            """Write a bundle if memory ran out, and end the recording."""
            self.recorder.failed(exception)
            self.recorder.end()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """End the recording."""
            self.recorder.end()

    return StormlogCallback


__getattr__ = lazily(globals(), {"StormlogCallback": _callback})
