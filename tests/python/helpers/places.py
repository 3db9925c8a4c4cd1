"""Where things are: the one place that knows how the folders of tests lie to each other."""

from __future__ import annotations

from pathlib import Path

HELPERS = Path(__file__).parent
TESTS = HELPERS.parents[1]
ROOT = TESTS.parent
PROGRAMS = TESTS / "programs"
GOLDEN = TESTS / "golden"
