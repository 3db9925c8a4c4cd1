"""How JAX is started: without the information lines of its C++ side, unless the user asks for them."""

from __future__ import annotations

import os

__all__ = ["configure_jax_logging"]


def configure_jax_logging() -> None:
    """Suppress informational log lines; call it before JAX is imported."""
    os.environ.setdefault("JAX_LOG_COMPILES", "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
