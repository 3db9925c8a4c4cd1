# The extension module, built from crates/python: one stub for each of its submodules.
# `python -m mypy.stubtest stormlog._native` checks them.

from stormlog._native import analysis as analysis
from stormlog._native import catalog as catalog
from stormlog._native import code as code
from stormlog._native import command as command
from stormlog._native import cuda as cuda
from stormlog._native import files as files
from stormlog._native import heap as heap
from stormlog._native import issues as issues
from stormlog._native import oom as oom
from stormlog._native import plot as plot
from stormlog._native import requests as requests
from stormlog._native import sink as sink
from stormlog._native import telemetry as telemetry
from stormlog._native import text as text
from stormlog._native import torch as torch
from stormlog._native import tracking as tracking

__all__ = [
    "__version__",
    "analysis",
    "catalog",
    "code",
    "command",
    "cuda",
    "files",
    "heap",
    "issues",
    "oom",
    "plot",
    "requests",
    "sink",
    "telemetry",
    "text",
    "torch",
    "tracking",
]

__version__: str
