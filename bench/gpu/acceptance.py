"""Runs every part of the GPU acceptance, each in a process of its own with a time limit, and sums up.

Started by bench/gpu/run, which puts the package where it is found. A part that fails or hangs costs itself.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


FACTS = """
import json, torch, stormlog
gpu = torch.cuda.get_device_properties(0)
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": gpu.name,
    "bytes": gpu.total_memory, "stormlog": stormlog.__version__, "from": stormlog.__file__}))
"""


def say(text: str = "") -> None:
    """A line of the log, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def call(words: list[str], limit: float) -> tuple[int, str]:
    """Exit status (124 when the time was over) and all that was printed."""
    with tempfile.TemporaryFile() as output:
        part = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = ""
        try:
            code = part.wait(limit)
        except subprocess.TimeoutExpired:
            # Its own processes too: what they hold of the GPU would fail the parts after it.
            os.killpg(part.pid, signal.SIGKILL)
            part.wait()
            code, late = 124, f"\nended after {limit:.0f} s\n"
        output.seek(0)
        return code, output.read().decode(errors="replace") + late


# A part has its own time, whatever the others take; together they take about ten minutes.
PARTS: list[tuple[str, float, list[str]]] = [
    ("facts", 30, ["-c", FACTS]),
    ("recording by itself", 130, ["tests/gpu/plain.py", "tests/gpu/test_auto_gpu.py"]),
    ("driver-level events", 40, ["tests/gpu/plain.py", "tests/gpu/test_driver_gpu.py"]),
    ("overhead", 280, ["bench/gpu/overhead.py", "270"]),
    ("categories by phase and module", 25, ["tests/gpu/plain.py", "tests/gpu/test_modules_gpu.py"]),
    ("profilers", 75, ["tests/gpu/plain.py", "tests/gpu/test_profiler_gpu.py"]),
    ("the supervisor samples GPUs", 40, ["tests/gpu/run_samples_gpus.py"]),
    ("JAX programs", 180, ["tests/gpu/plain.py", "tests/gpu/test_jax_gpu.py"]),
    ("allocator dumps", 60, ["tests/gpu/allocator_dump.py"]),
    ("serving", 90, ["tests/gpu/serving.py"]),
    ("the examples", 120, ["tests/gpu/plain.py", "tests/gpu/test_examples_gpu.py"]),
    ("the documents' samples", 60, ["tests/gpu/plain.py", "tests/gpu/test_documents_gpu.py"]),
]


def main() -> int:
    """Every part, or those whose names begin as the arguments do, then the sum."""
    say(f"GPU acceptance, {time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}")
    say(f"python {platform.python_version()} on {platform.platform()}")
    began, wanted = time.monotonic(), tuple(sys.argv[1:])
    results: list[tuple[str, bool, float]] = []
    for name, limit, words in PARTS:
        if wanted and not name.startswith(wanted):
            continue
        say(f"\n== {name}")
        started = time.monotonic()
        code, text = call(words, limit)
        say(text.rstrip())
        results.append((name, code == 0, time.monotonic() - started))
    say("\n== summary")
    for name, passed, took in results:
        say(f"{'PASSED' if passed else 'FAILED'}  {took:6.1f} s  {name}")
    say(f"{time.monotonic() - began:.0f} s in all")
    return 0 if results and all(passed for _, passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
