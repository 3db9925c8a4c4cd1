"""The native `stormlog` command: the one installed beside this interpreter, or the one that cargo built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from places import ROOT


def is_native(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def find() -> str:
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    places = [Path(sys.executable).parent, built / "debug", built / "release"]
    return str(next(place / "stormlog" for place in places if is_native(place / "stormlog")))


STORMLOG = find()
