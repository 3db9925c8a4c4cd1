"""How `STORMLOG=1` in the environment begins a recording: PyTorch and JAX call this module.

PyTorch calls :func:`torch_is_there` at the end of `import torch` (entry point `torch.backends`, from 2.5 on),
JAX calls :func:`initialize` before it starts its first backend (entry point `jax_plugins`). Without the
variable nothing is imported. Must never raise: `import torch` would fail with it.
"""

from __future__ import annotations

import contextlib
import os


def torch_is_there() -> None:
    """Begin to record, if the environment asks for it."""
    if os.environ.get("STORMLOG", "").lower() not in {"1", "on", "true", "yes"}:
        return
    with contextlib.suppress(Exception):
        import stormlog.auto  # noqa: F401


def initialize() -> None:
    """As JAX calls its plugins. No backend is registered here."""
    torch_is_there()
