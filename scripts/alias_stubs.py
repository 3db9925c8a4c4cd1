"""Writes the stubs of the older package names: what `gpumemprof.x` and `tfmemprof.x` are, for type checkers.

At run time an import hook answers for those names (`stormlog._alias`), which type checkers cannot follow. One
stub for each public module says the same: one line each, generated from the files of `python/stormlog`, never
committed. The build backend and `make fmt` call this; it must import nothing but the standard library.
"""

from __future__ import annotations

from pathlib import Path

PYTHON = Path(__file__).resolve().parent.parent / "python"
# The packages that an older name stands for; the first one that has a module wins, as in `stormlog._alias`.
TARGETS = {"gpumemprof": ("stormlog",), "tfmemprof": ("stormlog.tensorflow", "stormlog")}

_ROOT = """\
from stormlog import *
from stormlog import MemoryError as MemoryError  # mypy leaves names of builtins out of a star import
from stormlog import __all__ as __all__
from stormlog import __author__ as __author__
from stormlog import __version__ as __version__
"""


def stubs(alias: str, python: Path = PYTHON) -> dict[str, str]:
    """The stubs of one older name: file name to text."""
    texts = {"__init__.pyi": _ROOT}
    for package in reversed(TARGETS[alias]):
        for name in _public_modules(python / package.replace(".", "/")):
            texts[f"{name}.pyi"] = f"from {package}.{name} import *\n"
    return texts


def write(python: Path = PYTHON) -> None:
    """Write every stub that is missing or different, and remove those of modules that are gone."""
    for alias in TARGETS:
        texts = stubs(alias, python)
        for stub in (python / alias).glob("*.pyi"):
            if stub.name not in texts:
                stub.unlink()
        for name, text in texts.items():
            stub = python / alias / name
            # An unchanged file keeps its time: make would build the package again.
            if not stub.exists() or stub.read_text() != text:
                stub.write_text(text)


def _public_modules(package: Path) -> list[str]:
    modules = [entry.stem for entry in package.glob("*.py")]
    packages = [entry.parent.name for entry in package.glob("*/__init__.py")]
    return sorted(name for name in modules + packages if not name.startswith("_"))


if __name__ == "__main__":
    write()
