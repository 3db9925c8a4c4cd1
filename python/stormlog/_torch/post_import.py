"""Something to do right after a module is imported, by whomever, and never earlier.

The module itself, its spec and its loader look afterwards as if nothing had waited for it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], object]) -> None:
    """Call this once the module is there: now, or when its import has ended. What it raises is dropped."""
    if name in sys.modules:
        _quietly(then)
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder:
    """Lets the other finders find the module, and has its loader say when it is done."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        # Those behind this one: two that wait for the same module would ask each other for ever.
        behind = sys.meta_path.index(self) + 1 if self in sys.meta_path else 0
        others = [finder for finder in sys.meta_path[behind:] if finder is not self]
        spec = next(filter(None, (_ask(finder, fullname, path, target) for finder in others)), None)
        loader: Any = None if spec is None else spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        run = loader.exec_module

        def run_and_tell(module: ModuleType) -> None:
            # Only now: to be asked for a spec is not to be imported.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            vars(loader).pop(
                "exec_module", None
            )  # ours, if another that waits has not; the class's is there again
            run(module)
            _quietly(self._then)

        with contextlib.suppress(AttributeError):  # a loader that takes no attributes is left alone
            loader.exec_module = run_and_tell
        return spec


def _ask(finder: Any, name: str, path: Any, target: Any) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    found: ModuleSpec | None = None if find is None else find(name, path, target)
    return found


def _quietly(then: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        then()
