"""`python -m stormlog`: becomes the native command that is installed with this package.

Where there is none (a bare module build), the extension module runs the same code in this process. Either way
the command takes the process over: Ctrl-C ends it with 130, and nothing here returns.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_LOCALE = b"LC_CTYPE"
_ELF = b"\x7fELF"


def stormlog() -> NoReturn:
    """`stormlog`."""
    _run("stormlog")


def gpumemprof() -> NoReturn:
    """`gpumemprof`, the older name for PyTorch programs."""
    _run("gpumemprof")


def tfmemprof() -> NoReturn:
    """`tfmemprof`, the older name for TensorFlow programs."""
    _run("tfmemprof")


def jaxmemprof() -> NoReturn:
    """`jaxmemprof`, the older name for JAX programs."""
    _run("jaxmemprof")


def command() -> str | None:
    """The native `stormlog` beside this package.

    A wheel puts it into the prefix of its packages (venv, pipx, conda, --user) or, with --target, into their
    directory. The packages of an editable installation are elsewhere; its command is beside the interpreter.
    """
    path = os.path  # pathlib costs more than all that is done here
    packages = path.dirname(path.dirname(path.abspath(__file__)))
    prefixes = [packages, path.dirname(path.dirname(sys.executable or ""))]
    if path.basename(packages) in ("site-packages", "dist-packages"):
        prefixes.insert(0, path.normpath(path.join(packages, *[os.pardir] * 3)))
    for prefix in filter(None, prefixes):
        program = path.join(prefix, "bin", "stormlog")
        try:
            with open(program, "rb") as file:
                # A console script of another release is not the program of this one.
                if file.read(len(_ELF)) == _ELF and os.access(program, os.X_OK):
                    return program
        except OSError:
            continue
    return None


def _run(program: str) -> NoReturn:
    _undo_startup()
    path = command()
    if path is not None:
        caller = [f"--interpreter={sys.executable}"] if sys.executable else []
        import signal

        # Python ignores it for itself; the native command passes on what it was started with.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execv(path, [program, *caller, *sys.argv[1:]])
    if program == "stormlog" and sys.argv[1:2] == ["sql"]:
        from stormlog._sql import main

        sys.exit(main(sys.argv[2:]))
    from stormlog import _native

    _native.command.release_interrupts()
    sys.exit(_native.command.run_cli(program, sys.argv[1:]))


def _undo_startup() -> None:
    """Undoes what Python changed for itself when it started and a recorded program would inherit.

    That is the locale where it would be C (PEP 538), and the signal of files that may not grow.
    """
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        with open("/proc/self/environ", "rb") as file:
            first = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    except OSError:
        return
    if _LOCALE in first:
        os.environb[_LOCALE] = first[_LOCALE]
    else:
        os.environb.pop(_LOCALE, None)
