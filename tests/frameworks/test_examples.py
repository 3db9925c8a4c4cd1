"""The examples that need PyTorch or a notebook, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def printed(program: str, directory: Path) -> str:
    """What an example prints, on a machine without a GPU."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / program],
        cwd=directory,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", ["cuda_oom", "fragmentation"])
def test_program_for_a_gpu_names_its_snapshot_without_one(program: str, tmp_path: Path) -> None:
    snapshot = f"examples/recorded/{program}.pickle.gz"
    assert printed(f"{program}.py", tmp_path).split()[-1] == snapshot
    assert (EXAMPLES.parent / snapshot).exists() and list(tmp_path.iterdir()) == []


def test_tour_of_gpumemprof_prints_figures_and_leaves_files(tmp_path: Path) -> None:
    said = printed("gpumemprof_tour.py", tmp_path)
    for line in ("backend: cpu", "first step: ", "ten steps: peak "):
        assert line in said
    assert re.search(r"^[1-9]\d* events: gpumemprof analyze tour\.json$", said, re.MULTILINE), said
    assert {"tour.json", "tour.png"} <= {path.name for path in tmp_path.iterdir()}


def test_cells_of_the_notebook_show_their_heap() -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.source.startswith("%%stormlog_heap")]
    assert len(cells) == 2
    for cell in cells:
        assert any("text/html" in output.get("data", {}) for output in cell.outputs), cell.outputs
