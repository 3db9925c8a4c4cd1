"""Steps of a training loop that no trainer reports: they end where PyTorch's optimizer makes one.

Private. By PyTorch's hook for all optimizers; keeps no optimizer.
"""

from __future__ import annotations

import sys
from typing import Any

from stormlog.integrations._optional import framework
from stormlog.integrations._trainer import TrainerRecorder


def optimizer_module() -> Any:
    """PyTorch's module of this name; ImportError with the command that installs PyTorch."""
    framework("torch.optim", "torch")
    # `torch.optim` hides it behind a name of its own.
    return sys.modules["torch.optim.optimizer"]


class OptimizerSteps:
    """Ends a step of the recorder after each step of an optimizer, and begins the next."""

    def __init__(self, recorder: TrainerRecorder) -> None:
        self._recorder = recorder
        self._handle: Any = None
        self._main: int | None = None
        self.made = 0

    def count(self) -> None:
        """From now on; a second call does nothing."""
        if self._handle is None:
            self._handle = optimizer_module().register_optimizer_step_post_hook(self._is_made)
            self._recorder.begin_step(self.made)

    def stop(self) -> None:
        """No longer."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _is_made(self, optimizer: Any, *_: Any) -> None:
        # A program with several optimizers has the steps of the first.
        self._main = self._main or id(optimizer)
        if self._main == id(optimizer):
            self.made += 1
            self._recorder.end_step()
            self._recorder.begin_step(self.made)
