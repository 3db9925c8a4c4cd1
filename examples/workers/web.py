"""An application for gunicorn that keeps more with each request to /leak."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

kept: list[bytearray] = []


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answers with the number of the worker's process."""
    if environ["PATH_INFO"] == "/leak":
        kept.append(bytearray(16 << 20))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
