"""Runs every part of the GPU acceptance, each in a process of its own with a time limit, and sums up.

Started by bench/gpu/run, which puts the package where it is found. A part that fails or hangs costs itself.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TRAIN = str(ROOT / "bench" / "torch" / "train.py")
# All of it must be done by then; what is left gets no more than what is left.
SECONDS = 470.0
STARTED = time.monotonic()
PROCESS_ROUNDS = 3


def say(text: str = "") -> None:
    """A line of the log, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def call(words: list[str], limit: float, **env: str) -> tuple[int, str]:
    """Exit status (124 when the time was over) and all that was printed."""
    left = min(limit, SECONDS - (time.monotonic() - STARTED))
    if left <= 5:
        return 124, "no time left\n"
    with tempfile.TemporaryFile() as output:
        part = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = ""
        try:
            code = part.wait(left)
        except subprocess.TimeoutExpired:
            # Its own processes too: what they hold of the GPU would fail the parts after it.
            os.killpg(part.pid, signal.SIGKILL)
            part.wait()
            code, late = 124, f"\nended after {left:.0f} s\n"
        output.seek(0)
        return code, output.read().decode(errors="replace") + late


def last_json(text: str) -> dict[str, Any]:
    """The last line that is an object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise ValueError(f"no result in what was printed:\n{text[-2000:]}")


def facts() -> bool:
    """The machine."""
    source = (
        "import json, torch, stormlog; p = torch.cuda.get_device_properties(0); print(json.dumps({"
        "'torch': torch.__version__, 'cuda': torch.version.cuda, 'gpu': p.name, 'bytes': p.total_memory,"
        "'stormlog': stormlog.__version__, 'from': stormlog.__file__}))"
    )
    code, text = call(["-c", source], 90)
    say(f"python {platform.python_version()} on {platform.platform()}")
    say(text.strip())
    return code == 0


def tests(name: str, limit: float) -> Callable[[], bool]:
    """A file of tests/gpu, without pytest."""

    def part() -> bool:
        code, text = call(["tests/gpu/plain.py", f"tests/gpu/{name}"], limit)
        say(text.rstrip())
        return code == 0

    return part


def samples_gpus() -> bool:
    """The supervisor's own view of the GPU."""
    code, text = call(["tests/gpu/run_samples_gpus.py"], 90)
    say(text.rstrip())
    return code == 0


@functools.cache
def batch() -> str:
    """The batch that gives about 30 steps a second here."""
    code, text = call([TRAIN, "--calibrate"], 60)
    if code != 0:
        raise RuntimeError(f"the training loop does not run:\n{text[-2000:]}")
    return str(last_json(text)["batch"])


def overhead_in_process() -> bool:
    """Recording off and on in turn, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        code, text = call(
            [TRAIN, "--batch", batch(), "--alternate", "8", "--steps", "40"], 120, STORMLOG_DIR=folder
        )
        kept = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    if code != 0:
        say(text[-2000:])
        return False
    found = last_json(text)
    off, on = statistics.median(found["off"]), statistics.median(found["on"])
    say(f"batch {batch()}: {1 / off:.1f} steps/s; step {off * 1e3:.3f} ms bare, {on * 1e3:.3f} ms recorded")
    say(f"ratio of each pair: {', '.join(f'{ratio:.4f}' for ratio in found['ratios'])}")
    say(f"overhead_in_process ratio {found['ratio_median']:.4f} (wanted: <= 1.01); {kept} bytes on disk")
    return bool(found["ratio_median"] <= 1.01)


def overhead_of_run() -> bool:
    """The program by itself and under `stormlog run`, in turn."""
    bare: list[float] = []
    recorded: list[float] = []
    for _ in range(PROCESS_ROUNDS):
        words = [TRAIN, "--batch", batch(), "--steps", "150"]
        code, text = call(words, 60)
        if code != 0:
            say(text[-2000:])
            return False
        bare.append(last_json(text)["median"])
        with tempfile.TemporaryDirectory() as folder:
            run = ["-m", "stormlog", "run", "--quiet", "--dir", folder, "--", sys.executable, *words]
            code, text = call(run, 60)
        if code != 0:
            say(text[-2000:])
            return False
        found = last_json(text)
        if not found["recorded"]:
            say("the run did not record torch")
            return False
        recorded.append(found["median"])
    ratio = statistics.median(recorded) / statistics.median(bare)
    say("bare     ms/step: " + ", ".join(f"{value * 1e3:.3f}" for value in bare))
    say("recorded ms/step: " + ", ".join(f"{value * 1e3:.3f}" for value in recorded))
    say(f"overhead_of_run ratio {ratio:.4f} (wanted: <= 1.01)")
    return ratio <= 1.01


PARTS: list[tuple[str, Callable[[], bool]]] = [
    ("facts", facts),
    ("recording by itself (test_auto_gpu.py)", tests("test_auto_gpu.py", 210)),
    ("overhead in one process", overhead_in_process),
    ("overhead of stormlog run", overhead_of_run),
    ("categories by phase and module (test_modules_gpu.py)", tests("test_modules_gpu.py", 60)),
    ("profilers (test_profiler_gpu.py)", tests("test_profiler_gpu.py", 120)),
    ("the supervisor samples GPUs (run_samples_gpus.py)", samples_gpus),
]


def main() -> int:
    """Every part, then the sum."""
    say(f"GPU acceptance, {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}")
    results: list[tuple[str, bool, float]] = []
    for name, part in PARTS:
        say(f"\n== {name}")
        began = time.monotonic()
        try:
            passed = part()
        except Exception as error:
            say(f"{type(error).__name__}: {error}")
            passed = False
        results.append((name, passed, time.monotonic() - began))
    say("\n== summary")
    for name, passed, took in results:
        say(f"{'PASSED' if passed else 'FAILED'}  {took:6.1f} s  {name}")
    say(f"{time.monotonic() - STARTED:.0f} s in all")
    return 0 if all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
