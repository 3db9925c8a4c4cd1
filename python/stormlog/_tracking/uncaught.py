"""Exceptions that end a program or a thread: looked at on their way, never held up. Private."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


def when_uncaught(look: Callable[[BaseException], None]) -> None:
    """Call this with every exception that is not caught, before the earlier hooks. It must not raise."""
    previous, previous_in_thread = sys.excepthook, threading.excepthook

    def on_exception(kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            look(error)
        previous(kind, error, trace)

    def on_thread_exception(arguments: Any) -> None:
        if arguments.exc_value is not None:
            look(arguments.exc_value)
        previous_in_thread(arguments)

    sys.excepthook, threading.excepthook = on_exception, on_thread_exception
