"""Runs every case of the table and prints the results as JSON: `python compat_run.py FOLDER`.

FOLDER holds the files that the loader cases read; `write_files` makes them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import compat_legacy  # noqa: F401 (adds its cases)
import compat_loaders
from compat_cases import CASES

write_files = compat_loaders.write_files


def run_all(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, function in CASES.items():
        try:
            results[name] = {"value": plain(function(folder))}
        except Exception as error:
            results[name] = {"error": type(error).__name__, "text": str(error)}
    return results


def plain(value: Any) -> Any:
    """Any result as JSON, without losing what distinguishes two results."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {"mapping": sorted(([repr(key), plain(inner)] for key, inner in value.items()), key=str)}
    if isinstance(value, (list, tuple)) or type(value).__name__ == "TelemetryEventList":
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    return repr(value)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_all(Path(sys.argv[1]))))
