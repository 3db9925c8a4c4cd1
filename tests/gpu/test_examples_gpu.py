"""The programs of examples/ that need a GPU, as the guide runs them; what Stormlog answers names their lines.

Without pytest: `python tests/gpu/plain.py tests/gpu/test_examples_gpu.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
STORMLOG = [sys.executable, "-m", "stormlog"]


def stormlog(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STORMLOG, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def line_of(program: str, text: str) -> int:
    lines = (EXAMPLES / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_program_that_keeps_graphs_runs_out_of_memory_and_its_line_is_named(tmp_path: Path) -> None:
    done = stormlog(tmp_path, "run", "--", sys.executable, str(EXAMPLES / "cuda_oom.py"))
    assert done.returncode == 1, done.stderr
    answer = done.stderr[done.stderr.index("stormlog: ") :]
    sys.stdout.write(answer)
    line = line_of("cuda_oom.py", "loss = model(")
    assert f"cuda_oom.py:{line} evaluate" in "\n".join(answer.splitlines()[:8]), answer
    shown = stormlog(tmp_path, "oom", "show", "stormlog-runs", "--last")
    assert shown.returncode == 0 and f"cuda_oom.py:{line} evaluate" in shown.stdout, shown.stderr
    explained = stormlog(tmp_path, "snapshot", "cuda_oom.pickle", "-n", "3")
    assert "out of memory: requested " in explained.stdout, explained.stderr
    assert f"cuda_oom.py:{line} evaluate" in explained.stdout


def test_program_that_copies_to_grow_fragments_and_a_setting_is_named(tmp_path: Path) -> None:
    done = stormlog(
        tmp_path,
        "run",
        "--torch-history",
        "segments",
        "--",
        sys.executable,
        str(EXAMPLES / "fragmentation.py"),
    )
    assert done.returncode == 0 and " retries" in done.stdout, done.stderr
    explained = stormlog(tmp_path, "snapshot", "fragmentation.pickle")
    sys.stdout.write("\n".join(explained.stdout.splitlines()[:6]) + "\n")
    assert "verdict   fragmentation: " in explained.stdout, explained.stderr
    assert "expandable_segments:True would have held " in explained.stdout
    line = line_of("fragmentation.py", "torch.cat(")
    assert f"fragmentation.py:{line} grow" in explained.stdout
