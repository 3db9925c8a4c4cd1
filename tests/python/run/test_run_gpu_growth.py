"""Growth of GPU memory by line, from the capture of a plain run; the allocator of the GPUs is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from native import STORMLOG
from places import PROGRAMS

HEAP_PROGRAMS = PROGRAMS / "heap"
# What grows for less than three seconds on a device is a model that is loaded, to the rule.
PROGRAM = """
import os, sys, time
sys.path.insert(0, os.environ["PROGRAMS"])
import stand_in
cuda, c10, allocate, free = stand_in.load()
MB = 1 << 20
kept = []
weights = allocate(0, 700 * MB, 0)
end = time.monotonic() + 4
while time.monotonic() < end:
    kept.append(allocate(0, 16 * MB, 0))  # leak
    batch = allocate(1, 64 * MB, 0)
    time.sleep(0.02)
    free(1, batch, 64 * MB, 0)
"""


def test_analyze_names_the_line_that_grows_on_a_gpu_once(tmp_path: Path, stand_in: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    words = [STORMLOG, "run", "-q", "--dir", str(tmp_path / "runs"), "--", sys.executable, str(program)]
    known = {**os.environ, "STAND_IN": str(stand_in), "PROGRAMS": str(HEAP_PROGRAMS)}
    subprocess.run(words, check=True, env=known)
    done = subprocess.run(
        [STORMLOG, "analyze", str(tmp_path / "runs"), "--format", "json"], capture_output=True, text=True
    )
    assert done.returncode == 3, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    leaks = [found for found in report["findings"] if found["kind"] == "leak"]
    assert [found["memory"] for found in leaks] == ["cuda:0"], leaks
    (leak,) = leaks
    line = next(at for at, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith("# leak"))
    assert (leak["holder"]["file"], leak["holder"]["line"]) == (str(program), line)
    assert leak["process"] > 0 and " on cuda:0" in leak["title"]
    score = report["payload"]["optimization_score"]
    assert score["grade"] > "A", score
    # The budget of a build goes by the same growth: 16 MiB in about 20 ms.
    check = [STORMLOG, "check", str(tmp_path / "runs"), "--max-growth", "1MiB/s"]
    assert subprocess.run(check, capture_output=True).returncode == 4
