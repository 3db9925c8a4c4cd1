"""The examples that need no framework: what the guide does not run is run here, and none is forgotten."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from places import ROOT

EXAMPLES = ROOT / "examples"
#: What no test runs by its name, and what it is.
NOT_PROGRAMS = {"README.md", "Containerfile", "cuda_oom.pickle.gz", "fragmentation.pickle.gz"}


def shown_commands() -> str:
    """The commands of README.md and the guide, which tests/readme runs."""
    pages = [ROOT / "README.md", *(ROOT / "docs/guide").glob("*.md")]
    return "\n".join(
        line for page in pages for line in page.read_text().splitlines() if line.startswith("$ ")
    )


def test_every_example_is_run_or_checked_by_a_test() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__).resolve()]
    used = shown_commands() + "\n".join(path.read_text(encoding="utf-8") for path in tests)
    used += (ROOT / "Makefile").read_text() + (EXAMPLES / "demo.py").read_text()
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    forgotten = [
        path.relative_to(EXAMPLES).as_posix()
        for path in files
        if path.name not in NOT_PROGRAMS
        and not re.search(rf"\b{re.escape(path.name)}", used)
        # Tests of these take a whole directory, or name modules.
        and path.parent.name not in {"kubernetes", "monitoring", "workers", "ci"}
    ]
    assert forgotten == []


def test_simulated_error_leaves_a_bundle(tmp_path: Path) -> None:
    program = EXAMPLES / "oom_flight_recorder.py"
    done = subprocess.run(
        [sys.executable, program, "--simulate"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "RuntimeError after 0 batches" in done.stdout
    (bundle,) = (tmp_path / "oom_dumps").iterdir()
    metadata = json.loads((bundle / "metadata.json").read_text())
    assert metadata["context"] == "training.forward"
    assert metadata["custom_metadata"]["batch_mb"] == 32


def test_steps_of_the_workflow_pass_and_write_their_files(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "ci/pipeline.py", tmp_path)
    workflow = (EXAMPLES / "ci/github.yml").read_text()
    steps = re.findall(r"run: (stormlog .*)$", workflow, re.MULTILINE)
    assert len(steps) == 3
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": "summary.md"}
    baseline = "stormlog check runs --baseline memory-baseline.json --update-baseline"
    for step in [steps[0], baseline, *steps[1:]]:
        done = subprocess.run(
            ["bash", "-c", step], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, (step, done.stdout, done.stderr)
    assert "| " in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "memory.xml").exists() and (tmp_path / "report.html").exists()
