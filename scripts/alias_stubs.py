"""Writes the stubs of the older package names: what `gpumemprof.x` and `tfmemprof.x` are, for type checkers.

At run time an import hook answers for those names (`stormlog._alias`), which type checkers cannot follow. One
stub for each public module says the same: one line each, generated from the files of `python/stormlog`, never
committed. The build backend and `make fmt` call this; it must import nothing but the standard library.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PYTHON = Path(__file__).resolve().parent.parent / "python"
# The packages that an older name stands for; the first one that has a module wins, as in `stormlog._alias`.
TARGETS = {"gpumemprof": ("stormlog",), "tfmemprof": ("stormlog.tensorflow", "stormlog")}

_ROOT = """\
from stormlog import __all__ as __all__
from stormlog import __author__ as __author__
from stormlog import __version__ as __version__
"""


def stubs(alias: str, python: Path = PYTHON) -> dict[str, str]:
    """The stubs of one older name: file name to text."""
    names: dict[str, str] = {}
    for package in reversed(TARGETS[alias]):
        names |= dict.fromkeys(_public_names(python / package.replace(".", "/")), package)
    # Name by name: `__all__` of the stub has no contents, and a star import of it is empty.
    lines = [f"from {home} import {name} as {name}\n" for name, home in sorted(names.items())]
    texts = {"__init__.pyi": _ROOT + "".join(lines)}
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


def _public_names(package: Path) -> list[str]:
    """What a package re-exports: by its stub, else by its `__all__`."""
    stub, module = package / "__init__.pyi", package / "__init__.py"
    if stub.exists():
        return re.findall(r"\b([A-Za-z]\w*) as \1\b", stub.read_text(encoding="utf-8"))
    for statement in ast.parse(module.read_text(encoding="utf-8")).body if module.exists() else []:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


if __name__ == "__main__":
    write()
