"""The page of measurements is what its files give, and every row has the one form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[3] / "bench"


def test_page_of_results_is_current() -> None:
    command = [sys.executable, str(BENCH / "results.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_measurement_names_its_command_date_and_machine() -> None:
    files = sorted((BENCH / "results").glob("*.json"))
    assert len(files) >= 8
    for path in files:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert all(found[key] for key in ("title", "command", "date", "machine", "rows")), path.name
        assert all(len(row) == 5 and row[0] and (row[1] or row[3]) for row in found["rows"]), path.name


def test_results_are_kept_in_one_place_and_no_log_is() -> None:
    pages = {path.relative_to(BENCH).as_posix() for path in BENCH.rglob("*.md") if "data" not in path.parts}
    assert {page for page in pages if not page.endswith("README.md")} == {"RESULTS.md"}
    listed = subprocess.run(["git", "ls-files"], cwd=BENCH, capture_output=True, text=True, check=True)
    raw = [name for name in listed.stdout.split() if name.endswith((".log", ".out", ".txt", ".csv"))]
    assert raw == []
