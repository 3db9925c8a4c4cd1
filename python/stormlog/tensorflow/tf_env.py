"""How TensorFlow is started: quietly, unless the user says otherwise."""

from __future__ import annotations

import os

__all__ = ["configure_tensorflow_logging"]


def configure_tensorflow_logging() -> None:
    """Leaves out what TensorFlow's C++ side says for information; to be called before it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
