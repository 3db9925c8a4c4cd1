"""Writes the catalogue; with `--peer DIRECTORY` first the list of texts that the 0.4.3 there has too."""

from __future__ import annotations

import sys
from pathlib import Path

from . import CATALOGUE, COMPATIBLE, catalogue, compatible_with

_HEAD = """\
# Texts that are in the sources of stormlog 0.4.3 too; they are kept.
# `python -m messages --peer DIRECTORY` in scripts/ lists them again.
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        texts = compatible_with(Path(sys.argv[2]))
        COMPATIBLE.write_text(_HEAD + "".join(f"{text}\n" for text in texts), encoding="utf-8")
    CATALOGUE.write_text(catalogue(), encoding="utf-8")
