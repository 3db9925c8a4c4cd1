"""What recording costs a training loop: processes of it, bare and recorded in some ways, stepping in turn.

One steps while the others wait, a second at a time, so that whatever the machine does in the meantime it does
to all of them. The medians of neighbouring blocks are compared.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TRAIN = str(Path(__file__).parent.parent / "torch" / "train.py")
# The most that `stormlog run` and `stormlog.auto` may cost where the device, and where the host is the limit.
WANTED, WANTED_HOST = 1.01, 1.03
# How the loop is recorded; the last two are for comparison and have no limit.
BARE, AUTO, RUN = "bare", "stormlog.auto", "stormlog run"
DRIVER, HISTORY = "stormlog run --cuda-driver", "PyTorch's history, context=alloc"
WAYS = (BARE, AUTO, RUN, DRIVER, HISTORY)
# Steps a block and rounds: with about 30 steps a second; with a batch so small that the host takes longer.
DEVICE_BOUND, HOST_BOUND = (10, 20), (10, 40)
SMALL = 8


class Loop:
    """One process of the training loop."""

    def __init__(self, way: str, batches: list[int], folder: Path) -> None:
        words = [sys.executable, TRAIN, *(word for batch in batches for word in ("--batch", str(batch)))]
        if way == AUTO:
            words.append("--record")
        elif way == HISTORY:
            words += ["--history", "alloc"]
        elif way != BARE:
            run = [*way.split(), "--quiet", "--dir", str(folder), "--"]
            words = [sys.executable, "-m", *run, *words]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            cwd=folder,
        )

    def answer(self) -> dict[str, Any]:
        """The next line that is an object."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"the training loop ended with {self.process.wait()}")

    def step(self, batch: int, count: int) -> list[float]:
        """The seconds of each of `count` steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{batch} {count}\n")
        seconds: list[float] = self.answer()["seconds"]
        return seconds

    def end(self) -> dict[str, Any]:
        """What it says at the end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        found = self.answer()
        self.process.wait(90)
        return found


def measure(loops: dict[str, Loop], batch: int, count: int, rounds: int) -> dict[str, Any]:
    """Blocks of steps in turn, each way first as often as the others."""
    blocks: dict[str, list[float]] = {way: [] for way in loops}
    names = list(loops)
    for number in range(rounds):
        turn = number % len(names)
        for way in names[turn:] + names[:turn]:
            blocks[way].append(statistics.median(loops[way].step(batch, count)))
    ratios = {
        way: statistics.median(there / bare for there, bare in zip(blocks[way], blocks[BARE], strict=True))
        for way in names
    }
    return {
        "batch": batch,
        "milliseconds": {way: round(statistics.median(found) * 1e3, 4) for way, found in blocks.items()},
        "ratios": {way: round(ratio, 5) for way, ratio in ratios.items()},
        "spread_of_bare": round(max(blocks[BARE]) / min(blocks[BARE]), 4),
    }


def main() -> int:
    """Prints a line for each measurement; 1 when recording costs more than it may."""
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 100.0
    found = subprocess.run(
        [sys.executable, TRAIN, "--calibrate"], capture_output=True, text=True, check=True, timeout=limit
    )
    calibrated = json.loads(found.stdout.splitlines()[-1])
    batch = calibrated["batch"]
    sys.stdout.write(f"calibrated: {calibrated}\n")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        loops = {way: Loop(way, [batch, SMALL], folder) for way in WAYS}
        for loop in loops.values():
            stack.callback(loop.process.kill)
            patience = threading.Timer(limit, loop.process.kill)
            patience.daemon = True
            patience.start()
            stack.callback(patience.cancel)
        for loop in loops.values():
            loop.answer()
        paced = measure(loops, batch, *DEVICE_BOUND)
        sys.stdout.write(f"about 30 steps/s: {json.dumps(paced)}\n")
        sys.stdout.flush()
        small = measure(loops, SMALL, *HOST_BOUND)
        sys.stdout.write(f"host-bound: {json.dumps(small)}\n")
        ends = {way: loop.end() for way, loop in loops.items()}
        kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    sys.stdout.write(f"ends: {json.dumps(ends)}; {kept} bytes on disk\n")
    recorded = {way: ends[way]["recorded"] for way in WAYS}
    assert recorded == {way: way in (AUTO, RUN, DRIVER) for way in WAYS}, recorded
    within = True
    for words, measured_loop, wanted in (("device-bound", paced, WANTED), ("host-bound", small, WANTED_HOST)):
        worst = max(measured_loop["ratios"][way] for way in (AUTO, RUN))
        sys.stdout.write(f"{words}: overhead ratio {worst:.4f} (wanted: <= {wanted})\n")
        within = within and worst <= wanted
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
