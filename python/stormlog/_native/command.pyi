# The command line inside the interpreter: the submodule `stormlog._native.command`.
from collections.abc import Sequence

__all__ = [
    "release_interrupts",
    "run_cli",
]

def run_cli(program: str, args: Sequence[str]) -> int: ...
def release_interrupts() -> None: ...
