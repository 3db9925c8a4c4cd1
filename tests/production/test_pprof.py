"""pprof files that we write, read by Go's own `pprof`: four types, and totals that agree with ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import components
import pytest

HOLDS = """
kept = [bytearray(1 << 20) for _ in range(40)]
for _ in range(60):
    bytearray(1 << 20)
"""
UNITS = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that holds 40 of the 100 MiB it allocates."""
    place = tmp_path_factory.mktemp("pprof")
    (place / "holds.py").write_text(HOLDS)
    stormlog("run", "--quiet", "--dir", str(place / "runs"), "--heap", "-o", str(place / "heap.slcap"),
             sys.executable, str(place / "holds.py"))  # fmt: skip
    return place / "heap.slcap"


def stormlog(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stormlog", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def total(profile: Path, kind: str) -> int:
    words = [
        str(components.pprof()),
        "-symbolize=none",
        f"-sample_index={kind}",
        "-top",
        "-unit=B",
        str(profile),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = re.search(r"of (\d+)([kMG]?B)? total", done.stdout)
    assert found, done.stdout + done.stderr
    return int(found[1]) * UNITS[found[2] or "B"]


def test_totals_of_all_four_types_are_those_of_the_capture(capture: Path, tmp_path: Path) -> None:
    profile = tmp_path / "heap.pb.gz"
    stormlog("transform", "pprof", str(capture), "-o", str(profile))
    stats = json.loads(stormlog("stats", str(capture), "--json"))
    assert total(profile, "inuse_space") == stats["peak_bytes"]
    assert total(profile, "alloc_objects") == stats["total_allocations"]
    assert total(profile, "alloc_space") == stats["total_allocated_bytes"]
    assert total(profile, "inuse_objects") == stats["peak_blocks"]
    assert total(profile, "alloc_space") >= 100 << 20 > total(profile, "inuse_space") >= 40 << 20


def test_the_header_names_the_period_and_the_lines_have_their_places(capture: Path, tmp_path: Path) -> None:
    profile = tmp_path / "heap.pb.gz"
    stormlog("transform", "pprof", str(capture), "-o", str(profile))
    words = [str(components.pprof()), "-raw", str(profile)]
    raw = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "PeriodType: space bytes" in raw and "Period: 1\n" in raw
    assert re.search(r"^Duration: \S+", raw, re.MULTILINE), raw[:500]
    assert "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]" in raw
    assert re.search(r"holds\.py:2 ", raw), "the line that holds it"
