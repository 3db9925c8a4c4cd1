"""The class of an integration, made from its framework's base class when it is first asked for.

Private. A framework that is not installed is one sentence with the command that installs it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def framework(name: str, extra: str) -> Any:
    """The framework's module, imported now."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise  # it is there, and something that it needs is not
        raise ImportError(
            f"{name.partition('.')[0]} is not installed. Install it with `pip install 'stormlog[{extra}]'`."
        ) from None


def lazily(module: dict[str, Any], makers: dict[str, Callable[[], Any]]) -> Callable[[str], Any]:
    """A module's `__getattr__`: each name is made once, when it is first asked for."""

    def get(name: str) -> Any:
        make = makers.get(name)
        if make is None:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        made = make()
        # As if it were written at the top of its module: pickle finds it by these.
        made.__module__, made.__qualname__ = module["__name__"], name
        module[name] = made
        return made

    return get
