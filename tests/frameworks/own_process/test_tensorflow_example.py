"""The tour of the TensorFlow API, as a reader would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).resolve().parents[3] / "examples/tfmemprof_tour.py"


def test_tour_of_tfmemprof_prints_figures(tmp_path: Path) -> None:
    command = [sys.executable, TOUR]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "augment: 1 call, peak " in done.stdout
    assert re.search(r"^steps: 16, worst: epoch \d step \d, peak \d+ MB$", done.stdout, re.MULTILINE), (
        done.stdout
    )
    assert re.search(r"^[1-9]\d* events over time$", done.stdout, re.MULTILINE), done.stdout
