"""Callbacks for trainers: Lightning, Transformers, Accelerate, DeepSpeed and FSDP2, Ray Train.

One module for each framework; none imports its framework before its class is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["accelerate", "deepspeed", "fsdp", "lightning", "ray", "transformers"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
