"""The cost of an allocation under a deep Python stack: bare, under `stormlog run --heap` and under Memray.

    python bench/heap/deep_stack.py --stormlog target/release/stormlog --memray .venv-bench/bin/memray

400,000 allocations of 600 bytes (past CPython's own allocator) from a leaf function under 30 and under
900 frames. Prints the best wall seconds of the loop alone. An unchanged stack is compared as far as
something may have changed, so both depths should cost about the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys, time
sys.setrecursionlimit(5000)
def leaf(count):
    begun = time.perf_counter()
    for _ in range(count):
        bytearray(600)
    return time.perf_counter() - begun
def down(depth):
    return down(depth - 1) if depth else leaf(400_000)
print(down(int(sys.argv[1])))
"""


def seconds(command: list[str], depth: int, repeat: int) -> float:
    """The best of several runs."""
    best = float("inf")
    for _ in range(repeat):
        done = subprocess.run([*command, str(depth)], capture_output=True, text=True, check=True)
        numbers = [line for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
        best = min(best, float(numbers[0]))
    return best


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stormlog", type=Path)
    parser.add_argument("--memray", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "deep.py")
        program.write_text(PROGRAM)
        ways = {"bare": [given.python, str(program)]}
        if given.stormlog:
            run = [str(given.stormlog), "run", "--heap", "--dir", folder, "--quiet", "--"]
            ways["stormlog"] = [*run, given.python, str(program)]
        if given.memray:
            ways["memray"] = [str(given.memray), "run", "-f", "-q", "-o", f"{folder}/out.bin", str(program)]
        for name, command in ways.items():
            shallow, deep = (seconds(command, depth, given.repeat) for depth in (30, 900))
            print(f"{name:9} 30 frames {shallow:.3f} s   900 frames {deep:.3f} s   {deep / shallow:.2f} x")


if __name__ == "__main__":
    main()
