"""Every environment variable of ours is on the page of the reference, and the page names no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAME = re.compile(r"\bSTORMLOG_[A-Z][A-Z0-9_]*\b")
# How two parts of one program talk, the build, and what tests make up.
INNER = re.compile(
    r"STORMLOG_(LIBRARY|HOOK_SPEC|BASIC_REGISTERS|FUNCTION|HOOK_IMAGE|BUILD_PROFILE|TOKEN|TEST_\w+)"
)


def test_page_of_environment_variables_is_complete() -> None:
    sources = [path for path in (ROOT / "crates").glob("*/src/**/*.rs") if "tests" not in path.stem]
    sources += [*(ROOT / "crates").glob("*/src/**/*.py"), *(ROOT / "python/stormlog").rglob("*.py")]
    used = {name for path in sources for name in NAME.findall(path.read_text(encoding="utf-8"))}
    page = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
    listed = set(NAME.findall(page))
    wanted = {name for name in used if not INNER.fullmatch(name)}
    assert len(wanted) > 20
    assert wanted - listed == set(), "undocumented"
    assert listed - used == set(), "documented, but nothing reads them"
