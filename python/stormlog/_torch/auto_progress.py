"""How far a program is: the training step it is in, and what it does there.

Private. Steps are those of its optimizer, counted by PyTorch's hook for all; the phase is read off the
stack when it is asked for. Keeps no frame, no tensor and no optimizer.
"""

from __future__ import annotations

import sys
import threading
import traceback
import weakref
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from stormlog._requests.steps import CLOCK

MAX_FRAMES = 64
# Where PyTorch hands a backward pass to its engine, and waits.
_BACKWARD = "_engine_run_backward"
# What a frame says: part of its file's name, the function that is not meant, the only one that is, the phase.
_SIGNS = (
    ("/torch/autograd/", None, _BACKWARD, "backward"),
    ("/torch/optim/", "zero_grad", None, "optimizer step"),
    ("/torch/nn/modules/module.py", None, "_call_impl", "forward"),
    ("/torch/utils/data/", None, None, "data loading"),
)


class Steps:
    """The steps each optimizer has made; a program with several is as far as the busiest of them."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._handle: Any = None
        self._most = 0

    def count(self) -> None:
        """Count from now on; a PyTorch without such a hook has no steps."""
        # `torch.optim` hides its module of this name.
        module = sys.modules.get("torch.optim.optimizer")
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is not None and self._handle is None:
            self._handle = register(self._is_made)

    def stop(self) -> None:
        """Forget them."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
        self._made.clear()
        self._most = 0

    def current(self) -> int | None:
        """The number of the step the program is in, from 1; None where no step was ever made."""
        made = max(list(self._made.values()), default=0)
        return made + 1 if made else None

    def _is_made(self, optimizer: Any, *_: Any) -> None:
        made = self._made.get(optimizer, 0) + 1
        self._made[optimizer] = made
        if made > self._most:
            self._most = made
            CLOCK.optimizer_made(made)


STEPS = Steps()


def stack_and_phase() -> tuple[tuple[str, ...], str | None]:
    """The Python stack, innermost first, and the phase it is in; as text, for a frame kept keeps its tensors.

    A backward pass runs on a thread of PyTorch's own; its stack is that of the thread which waits for it.
    """
    here = list(_lines(sys._getframe(1)))
    if not isinstance(threading.current_thread(), threading._DummyThread):
        return tuple(here), phase_of(here)
    me = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        lines = list(_lines(frame)) if thread != me else []
        if any(line.endswith(f" {_BACKWARD}") for line in lines):
            # With checkpoints there is a forward pass again inside the backward one.
            return tuple([*here, *lines][:MAX_FRAMES]), "backward"
    return tuple(here), phase_of(here)


def stack_of_error(error: BaseException) -> tuple[str, ...]:
    """Where an exception was raised, innermost first; as text."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [f"{code.co_filename}:{line} {code.co_name}" for code, line in reversed(frames)]
    return tuple(lines[:MAX_FRAMES])


def phase_of(stack: Sequence[str]) -> str | None:
    """What a stack is doing, by its innermost frame that says so."""
    for line in stack:
        place, _, function = line.rpartition(" ")
        for part, never, only, phase in _SIGNS:
            if part in place and function != never and only in (None, function):
                return phase
    return None


def _lines(frame: FrameType | None) -> Iterator[str]:
    count = 0
    while frame is not None and count < MAX_FRAMES:
        line = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        if "/stormlog/_torch/" not in line:
            count += 1
            yield line
        frame = frame.f_back
