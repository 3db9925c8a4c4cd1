"""Records the programs of the corpus again: `make corpus`, or `record.py NAME...` for some of them.

Each program runs under plain `stormlog run`, which samples the heap, several at a time, and its run directory
becomes `recordings/NAME`. Run it with the Python that has Stormlog; `CORPUS_TORCH_PYTHON` names one that has
PyTorch (without it, the programs that need it keep their recordings). Never keeps this machine's environment.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
RECORDINGS = HERE / "recordings"
COMMAND = "import sys; from stormlog._entry import stormlog; sys.exit(stormlog())"


def interpreter(program: Path) -> str | None:
    """The Python for a program; none where it needs PyTorch and there is none."""
    if "\n# needs: torch\n" not in program.read_text():
        return sys.executable
    return os.environ.get("CORPUS_TORCH_PYTHON") or None


def record(program: Path, stormlog: list[str], seconds: float, kept: Path) -> str:
    """Runs one program and keeps its run directory; a line about it."""
    python = interpreter(program)
    if python is None:
        return f"{program.stem}: needs PyTorch, left as it is"
    with tempfile.TemporaryDirectory(prefix="stormlog-corpus-") as folder:
        options = ["--wait", "--no-env", "--quiet", "--dir", folder]
        env = {**os.environ, "CORPUS_SECONDS": str(seconds), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command = [*stormlog, "run", *options, "--", python, str(program)]
        subprocess.run(command, env=env, cwd=folder, check=True, timeout=10 * seconds + 60)
        (run,) = Path(folder).iterdir()
        target = kept / program.stem
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(run, target, ignore=shutil.ignore_patterns(".locks"))
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return f"{program.stem}: {size / 1024:.0f} KiB"


def main() -> None:
    """Records all programs, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs, without .py; all of them by default")
    parser.add_argument("--seconds", type=float, default=70, help="how long each runs")
    parser.add_argument("--at-a-time", type=int, default=4, help="how many run at once")
    parser.add_argument("--into", type=Path, default=RECORDINGS, help="where recordings are kept")
    parser.add_argument("--stormlog", help="the command; that of this Python by default")
    options = parser.parse_args()
    stormlog = [options.stormlog] if options.stormlog else [sys.executable, "-c", COMMAND]
    programs = sorted(
        file for file in PROGRAMS.glob("*_*.py") if not options.names or file.stem in options.names
    )

    def one(program: Path) -> str:
        return record(program, stormlog, options.seconds, options.into)

    with concurrent.futures.ThreadPoolExecutor(options.at_a_time) as pool:
        for line in pool.map(one, programs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
