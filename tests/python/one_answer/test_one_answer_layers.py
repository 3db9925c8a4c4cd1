"""The layers of a process follow the answer; a leak is one finding, whichever recorder saw it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_command import STORMLOG, command

LEAK = """
import time
kept = []
def keep():
    kept.append(bytearray(4 << 20))
for _ in range(50):
    keep()
    time.sleep(0.05)
"""
# By the clock: on a busy machine a number of steps takes longer.
BUILDS = """
import time
kept = []
end = time.monotonic() + 2.6
while time.monotonic() < end:
    kept.append(bytearray(12 << 20))
    time.sleep(0.05)
kept.clear()
"""
INSIDE = f"""
from stormlog import MemoryTracker
with MemoryTracker(device="cpu", sampling_interval=0.05):
    exec({LEAK!r}, globals())
"""


def analyzed(tmp_path: Path, code: str, *options: str) -> tuple[Any, str]:
    (tmp_path / "main.py").write_text(code, encoding="utf-8")
    words = command(tmp_path / "runs", sys.executable, str(tmp_path / "main.py"), options=options)
    subprocess.run(words, capture_output=True, text=True, check=True)
    words = [*STORMLOG, "analyze", str(tmp_path / "runs")]
    text = subprocess.run(words, capture_output=True, text=True).stdout
    return json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True).stdout), text


@pytest.mark.parametrize(
    ("code", "options"),
    [(LEAK, ("--no-heap",)), (LEAK, ()), (LEAK, ("--heap", "--max-size", "200kB")), (INSIDE, ())],
    ids=["telemetry", "sampled", "folded", "inside"],
)
def test_one_leak_is_one_finding_and_the_layers_of_its_process_add_up(
    tmp_path: Path, code: str, options: tuple[str, ...]
) -> None:
    report, text = analyzed(tmp_path, code, *options)
    (found,) = (one for one in report["findings"] if one["kind"] == "leak" or one.get("undecided"))
    if "--no-heap" in options:
        # Samples alone do not decide within a few seconds; on a busy machine the program takes longer.
        is_short = found["metrics"]["seconds"] < 8
        assert found.get("undecided", False) == is_short, found
        assert ("; the recording is too short to call it a leak" in found["title"]) == is_short, found
    else:
        assert found["kind"] == "leak" and found["holder"], found
    (process,) = report["processes"]
    (host,) = process["residuals"]
    parts = {part["name"]: part["bytes"] for part in host["parts"]}
    assert host["memory"] == "host" and sum(parts.values()) == host["total_bytes"], host
    if "--no-heap" in options:
        assert parts["heap, stacks and other anonymous memory"] > 150 << 20, parts
    else:
        assert parts["heap"] > 150 << 20, parts
        growth = process["held"][0]["growth"]
        assert growth["since"].endswith("Z") and growth["after_start_seconds"] < 60, growth
        is_at_once = growth["after_start_seconds"] < 1
        when = " from the start" if is_at_once else f" since {growth['since'][11:]} ("
        assert when in report["headline"][1], report["headline"]
    assert text.index("  layers    RSS ") > text.index(report["headline"][0])


def test_memory_built_in_seconds_and_released_before_the_end_is_not_a_leak(tmp_path: Path) -> None:
    report, text = analyzed(tmp_path, BUILDS)
    findings = report["findings"]
    assert not [one for one in findings if one["kind"] == "leak" or one.get("undecided")], findings
    assert "no problem found" in report["headline"][0], report["headline"]
    assert "  try       " not in text, text
    growth = [one for one in findings if one["id"] == "growth.host"]
    assert all("no leak: " in one["message"] for one in growth), findings


def test_bare_capture_has_an_answer(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("kept = bytearray(40 << 20)\n", encoding="utf-8")
    capture = tmp_path / "own.bin"
    words = [*STORMLOG, "run", "--dir", str(tmp_path / "runs"), "--heap", "-o", str(capture)]
    subprocess.run([*words, sys.executable, str(tmp_path / "main.py")], capture_output=True, check=True)
    words = [*STORMLOG, "analyze", str(capture), "--json"]
    report = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    first, held = report["headline"][:2]
    assert first.startswith("main.py (pid ") and ": its heap peaked at 4" in first, report["headline"]
    assert "main.py:1 <module>" in held, report["headline"]
    page = tmp_path / "page.html"
    subprocess.run([*STORMLOG, "report", str(capture), "-o", str(page)], capture_output=True, check=True)
    packed = re.findall(r"H4sI[0-9A-Za-z+/=]+", page.read_text(encoding="utf-8"))
    assert any(b"its heap peaked at 4" in gzip.decompress(base64.b64decode(data)) for data in packed)
