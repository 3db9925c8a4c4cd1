"""What the process of `run --ship DIR` takes beside a sleeping program.

    bench/ship.py STORMLOG [SECONDS] [--keep]

The program holds 200 MB and sleeps; it is sampled ten times a second. With `--keep` the figures are written
to bench/results/ship.json and the page is made again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import Row, keep

PROGRAM = "import sys, time\nx = bytearray(200 << 20)\ntime.sleep(float(sys.argv[1]))"


def shipper(runs: Path) -> Path:
    """The directory in /proc of the process that ships."""
    while True:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"ship-run" in words and any(word.startswith(os.fsencode(runs)) for word in words):
                return process
        time.sleep(0.05)


def fields(text: str) -> dict[str, int]:
    """The numbers in a file of /proc."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {
        name: int(value.split()[0])
        for name, value in pairs
        if value.split()[:1] and value.split()[0].isdigit()
    }


def main() -> int:
    """Runs it, looks at the process, prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stormlog")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    command, seconds = options.stormlog, options.seconds
    with tempfile.TemporaryDirectory() as place:
        runs, target = Path(place) / "runs", Path(place) / "target"
        words = [command, "run", "-q", "--wait", "--dir", str(runs), "--ship", str(target)]
        with subprocess.Popen([*words, sys.executable, "-c", PROGRAM, str(seconds + 2)]):
            process = shipper(runs)
            time.sleep(seconds)
            numbers = (process / "stat").read_text().rsplit(")", 1)[1].split()
            ticks = int(numbers[11]) + int(numbers[12])
            written = fields((process / "io").read_text())["wchar"]
            peak = fields((process / "status").read_text())["VmHWM"]
        status = json.loads(next(runs.glob("*/.shipping.json")).read_text())
    rows = [
        Row("processor time", f"{ticks / os.sysconf('SC_CLK_TCK'):.2f} s in {seconds:.0f} s"),
        Row("resident memory, most", f"{peak / 1024:.1f} MiB"),
        Row("written", f"{written / seconds / 1000:.1f} kB/s"),
        Row("sent until the end of the run", f"{status['bytes_sent']:,} bytes"),
    ]
    for row in rows:
        print(f"{row.what}: {row.ours}")
    if options.keep:
        shape = "A program of 200 MB that sleeps, ten samples a second, to a directory on the same disk."
        load = f"Load average of the machine at the end: {os.getloadavg()[1]:.1f}."
        keep(
            "ship", "Shipping a run", rows, command="bench/ship.py STORMLOG --keep", notes=[f"{shape} {load}"]
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
