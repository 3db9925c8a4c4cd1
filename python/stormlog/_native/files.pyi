# Private files, and texts without secrets: the submodule `stormlog._native.files`.
import os

__all__ = [
    "create_directory",
    "create_file",
    "replace_file",
    "scrub_text",
]

def replace_file(path: str | os.PathLike[str], content: bytes) -> None: ...
def create_file(path: str | os.PathLike[str]) -> int: ...
def create_directory(path: str | os.PathLike[str]) -> None: ...
def scrub_text(text: str) -> str: ...
