"""Memory limits as tests: pytest -p stormlog examples/ci/test_pipeline.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline import PART, read_parts


@pytest.mark.limit_memory("20 MB")
def test_reading_in_parts_stays_below_20_mb(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\1" * (2 * PART))
    assert read_parts(tmp_path / "data") == 2 * PART
