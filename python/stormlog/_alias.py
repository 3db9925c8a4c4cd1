"""The older package names: `gpumemprof.x` and `tfmemprof.x` are the very modules of `stormlog`.

One module object under two names, so that `isinstance`, patching and pickles made under either name agree.
The finder answers for its own prefixes only and must never load a second copy of a module.
"""

from __future__ import annotations

import sys
from importlib import import_module

# `importlib.util` and `importlib.abc` would make the older name slower to import than the newer one.
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader, MetaPathFinder
    from types import ModuleType
else:
    Loader = MetaPathFinder = object


class _AliasLoader(Loader):
    """Hands out a module that is already loaded, or loads it under its own name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just put the alias's spec on it, which would break reloading it.
        module.__spec__ = self._own_spec


class _AliasFinder(MetaPathFinder):
    """Finds the submodules of one alias in the packages it stands for, in their order."""

    def __init__(self, alias: str, targets: tuple[str, ...]) -> None:
        self.alias = alias
        self.targets = targets

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(".")
        # `python -m gpumemprof` runs that package's own file.
        if prefix != self.alias or not name or name == "__main__":
            return None
        for package in self.targets:
            found = _find(f"{package}.{name}")
            if found is not None:
                is_package = found.submodule_search_locations is not None
                return ModuleSpec(fullname, _AliasLoader(found.name), is_package=is_package)
        return None


def _find(name: str) -> ModuleSpec | None:
    parent, _, _ = name.rpartition(".")
    if not parent:
        return PathFinder.find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    if _find(parent) is None:
        return None
    return PathFinder.find_spec(name, getattr(import_module(parent), "__path__", []))


def install(alias: str, *targets: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Makes `alias` stand for the packages `targets`; gives the alias's `__getattr__` and `__dir__`."""
    if not any(isinstance(finder, _AliasFinder) and finder.alias == alias for finder in sys.meta_path):
        # First, for the path finder would find the same file again and load it a second time.
        sys.meta_path.insert(0, _AliasFinder(alias, targets))

    def get(name: str) -> object:
        if not name.startswith("__"):
            for package in targets:
                if _find(package) is None:
                    continue
                module = import_module(package)
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {alias!r} has no attribute {name!r}")

    def names() -> list[str]:
        found = {*vars(sys.modules[alias])}
        for package in targets:
            if _find(package) is not None:
                found.update(name for name in dir(import_module(package)) if not name.startswith("_"))
        return sorted(found)

    return get, names
