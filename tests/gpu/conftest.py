"""These tests need a CUDA device; without one they are skipped, and say so."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest


def _has_device() -> bool:
    return find_spec("torch") is not None and bool(import_module("torch").cuda.is_available())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    if ours and not _has_device():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device here"))
