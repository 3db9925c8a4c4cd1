# Whose code a frame is, and which frame of a stack is responsible: the submodule `stormlog._native.code`.
from collections.abc import Sequence

__all__ = ["is_own_code", "responsible_frame"]

def is_own_code(file: str) -> bool: ...

# The place of the responsible frame among the files of a stack, the innermost first.
def responsible_frame(files: Sequence[str]) -> int | None: ...
