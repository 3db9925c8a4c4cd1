"""Imports the standard library one module each tenth of a second."""

import contextlib
import importlib
import sys

from clock import steps

names = sorted(
    name
    for name in sys.stdlib_module_names
    if not name.startswith("_") and name not in {"antigravity", "this", "idlelib"}
)
for step in steps(0.1):
    if step < len(names):
        with contextlib.suppress(ImportError):
            importlib.import_module(names[step])
