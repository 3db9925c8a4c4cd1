"""The three commands as a wheel installs them.

Each takes over its process: Ctrl-C ends it with 130, and it never returns. Nothing but the extension module
may be imported here, so that a command starts about as fast as the plain binary does.
"""

from __future__ import annotations

import os
import sys

from stormlog import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def stormlog() -> NoReturn:
    """`stormlog`."""
    if sys.argv[1:2] == ["sql"]:  # needs DuckDB, which only Python has
        from stormlog._sql import main

        sys.exit(main(sys.argv[2:]))
    _run("stormlog")


def gpumemprof() -> NoReturn:
    """`gpumemprof`, the older name for PyTorch programs."""
    _run("gpumemprof")


def tfmemprof() -> NoReturn:
    """`tfmemprof`, the older name for TensorFlow programs."""
    _run("tfmemprof")


def _run(program: str) -> NoReturn:
    # `run` starts scripts with this very interpreter; it takes the variable out of the program's environment.
    os.environ["STORMLOG_PYTHON"] = sys.executable
    _native.release_interrupts()
    sys.exit(_native.run_cli(program, sys.argv[1:]))
