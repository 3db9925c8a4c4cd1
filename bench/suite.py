"""Runs every measurement and writes it down. Started by `bench/run`, which builds what is needed.

Each measurement runs both packages, one after the other in the same run, each in processes of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from results import FOLDER, Row, keep

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
OURS = ROOT / ".venv/bin/python"
PEER = ROOT / ".venv-peer/bin/python"
DATA = BENCH / "data"
HELD = 100_000
SINK = 50_000


@dataclass
class Run:
    """What a process printed and took."""

    output: str
    wall: float
    cpu: float
    peak: int


def run(*command: str | Path) -> Run:
    """Runs a process; whatever goes wrong ends the benchmark."""
    start = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Run(output, wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def numbers(*command: str | Path) -> dict[str, Any]:
    """The JSON a program printed."""
    found: dict[str, Any] = json.loads(run(*command).output)
    return found


def events(shape: str, form: str, count: int) -> Path:
    """A file of events, made when it is not there."""
    path = DATA / f"{shape}-{count}.{form}"
    if not path.exists():
        part = path.with_suffix(".part")
        run(sys.executable, BENCH / "make_events.py", shape, form, str(count), part)
        part.rename(path)
    return path


def best_of(rounds: int, *command: str | Path) -> Run:
    """The quickest of `rounds` runs."""
    return min((run(*command) for _ in range(rounds)), key=lambda run: run.wall)


def append_and_sink(programs: Path) -> Iterator[Row]:
    """Append rates, and what closing a sink takes."""
    records, sample = events("cuda", "jsonl", SINK), events("cuda", "json", HELD)
    with tempfile.TemporaryDirectory(dir=DATA) as place:
        native = numbers(programs / "append", sample, place, "2000000")
        sinks: dict[str, list[dict[str, float]]] = {"rust": [], "ours": [], "peer": []}
        for attempt in range(3):
            where = Path(place) / str(attempt)
            sinks["rust"].append(numbers(programs / "sink", records, where / "rust"))
            sinks["ours"].append(numbers(OURS, BENCH / "sink.py", records, where / "ours"))
            sinks["peer"].append(numbers(PEER, BENCH / "sink.py", records, where / "peer"))
            shutil.rmtree(where)
    rate = {name: max(found["rate"] for found in runs) for name, runs in sinks.items()}
    close = {name: min(found["close"] for found in runs) for name, runs in sinks.items()}
    peer = f"{rate['peer']:,.0f}/s (its sink)"
    for name in ("log", "ring"):
        yield Row(
            f"append to the crash-safe {name}, one thread",
            f"{native[name]:,.0f}/s",
            peer,
            f"{native[name] / rate['peer']:,.0f}x",
            "≥ 1,000,000/s",
        )
    for name, label in (("ours", "Python"), ("rust", "Rust")):
        what = f"append to the sink, from {label}"
        yield Row(what, f"{rate[name]:,.0f}/s", peer, f"{rate[name] / rate['peer']:.1f}x", "")
        what = f"close the sink after {SINK:,} events, from {label}"
        ratio = f"1/{close['peer'] / close[name]:.0f}"
        yield Row(what, f"{close[name]:.3f} s", f"{close['peer']:.2f} s", ratio, "")


def load_json(programs: Path, count: int) -> Iterator[Row]:
    """Loading and validating a JSON export."""
    path = events("cuda", "json", count)
    for _ in path.open("rb"):  # into the page cache, for both
        pass
    peer = run(PEER, BENCH / "load.py", path)
    size = f"{count:,} events ({path.stat().st_size / 1e9:.2f} GB of JSON)"
    commands: dict[str, tuple[str | Path, ...]] = {
        "`stormlog validate`": (programs / "stormlog", "validate", path),
        "`load_telemetry_events`": (OURS, BENCH / "load.py", path),
    }
    for name, command in commands.items():
        ours = best_of(3, *command)
        assert f"{count}" in ours.output, ours.output
        what = f"{name}, {size}"
        ratio = f"1/{peer.wall / ours.wall:.0f}"
        yield Row(what + ": wall", f"{ours.wall:.2f} s", f"{peer.wall:.1f} s", ratio, "≤ 1/50")
        ratio = f"1/{peer.cpu / ours.cpu:.0f}"
        yield Row(what + ": CPU", f"{ours.cpu:.2f} s", f"{peer.cpu:.1f} s", ratio, "")
        ratio = f"1/{peer.peak / ours.peak:.0f}"
        yield Row(what + ": peak RSS", megabytes(ours.peak), megabytes(peer.peak), ratio, "< 300 MB")


def held(programs: Path) -> Iterator[Row]:
    """Memory that events take."""
    for shape in ("host", "cuda"):
        ours = numbers(programs / "held", events(shape, "json", HELD))
        peer = numbers(PEER, BENCH / "held_peer.py", shape)
        assert ours["events"] == HELD
        ratio = f"1/{peer['bytes'] / ours['bytes']:.1f}"
        what = f"{HELD:,} {shape}-shaped events held"
        yield Row(what, megabytes(ours["bytes"]), megabytes(peer["bytes"]), ratio, "≤ 12 MB")


def imports() -> Iterator[Row]:
    """What importing adds to a bare interpreter: medians of 30, taken in turn."""
    codes = {"bare": "pass", "import": "import stormlog"}
    times: dict[tuple[Path, str], list[float]] = {}
    for _ in range(30):
        for python in (OURS, PEER):
            for name, code in codes.items():
                times.setdefault((python, name), []).append(run(python, "-c", code).wall)
    median = {key: statistics.median(values) * 1000 for key, values in times.items()}
    ours, peer = (median[python, "import"] - median[python, "bare"] for python in (OURS, PEER))
    what = "`import stormlog`, over a bare interpreter"
    # Ours is within the noise of starting an interpreter, so that a ratio would mean nothing.
    yield Row(what, f"{ours:.1f} ms" if ours >= 1 else "< 1 ms", f"{peer:.1f} ms", "", "≤ 15 ms")


def megabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e6:,.1f} MB"


def version_of(*command: str | Path) -> str:
    """The first line a command prints."""
    return run(*command).output.splitlines()[0]


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=Path)
    parser.add_argument("--quick", action="store_true", help="load 100,000 events instead of a million")
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    count = 100_000 if options.quick else 1_000_000
    asked = "import importlib.metadata as m; print(m.version('stormlog'))"
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    parts = (
        append_and_sink(options.programs),
        held(options.programs),
        imports(),
        load_json(options.programs, count),
    )
    rows = []
    for row in chain.from_iterable(parts):
        rows.append(row)
        sys.stdout.write(f"{row.what}: {row.ours} ({row.peer}) {row.ratio} {row.goal}\n")
        sys.stdout.flush()
    keep(
        "telemetry",
        "Telemetry: appending, holding, loading",
        rows,
        command=f"bench/run{' --quick' if options.quick else ''}",
        peer=f"stormlog {version_of(PEER, '-c', asked)}",
        notes=[
            f"stormlog {version_of(OURS, '-c', asked)}, {version_of('rustc', '--version')}. Load: {load}."
        ],
        folder=DATA if options.quick else FOLDER,
    )


if __name__ == "__main__":
    main()
