"""The whole added wall time of recording short programs: bare, `stormlog run --heap` and Memray, in turn.

    python bench/heap/short.py --stormlog target/release/stormlog [--repeat 7] [--markdown FILE]

Added is the least wall time of the command over all repetitions less the bare program's least: start,
recording, and the time from the program's end until the prompt is back. The order turns with each repetition.
Needs Memray in the interpreter that runs this.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Name and code: each takes some tenths of a second at most.
PROGRAMS = {
    "nothing": "pass",
    "import json": "import json",
    "imports": "import asyncio, email.message, http.client, unittest, xml.dom.minidom, decimal",
    "strings": "x = [str(i) * 20 for i in range(100_000)]",
    "dictionary": "x = {i: [i] for i in range(200_000)}",
    "json": "import json; x = json.dumps([{'a': i, 'b': [1, 2, 3]} for i in range(30_000)]); json.loads(x)",
    "500k allocations": (
        "x = []\nfor i in range(500_000):\n    x.append(bytes(600))\n    if len(x) > 1000: x.clear()"
    ),
    "large blocks": "x = [bytearray(1 << 20) for _ in range(60)]",
    "threads": (
        "import threading\n"
        "def work():\n    x = [bytes(1000) for _ in range(20_000)]\n"
        "t = [threading.Thread(target=work) for _ in range(4)]\n"
        "[x.start() for x in t]; [x.join() for x in t]"
    ),
    "children": "import subprocess\nfor _ in range(5): subprocess.run(['/bin/true'])",
    "sqlite": (
        "import sqlite3; c = sqlite3.connect(':memory:'); c.execute('create table t (a, b)')\n"
        "c.executemany('insert into t values (?, ?)', ((i, str(i)) for i in range(50_000)))"
    ),
}


def once(words: list[str]) -> float:
    """Seconds until the prompt is back."""
    begun = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    taken = time.perf_counter() - begun
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return taken


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--stormlog", default="stormlog", help="the command")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--markdown", type=Path, help="where the table goes")
    options = parser.parse_args()
    stormlog = shlex.split(options.stormlog)
    rows: list[str] = []
    ratios: dict[str, list[float]] = {"run": [], "output": []}
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="stormlog-short-") as scratch:
            (script := Path(scratch) / "program.py").write_text(PROGRAMS[name])
            bare = [sys.executable, str(script)]
            runs, output = f"{scratch}/runs", f"{scratch}/out.bin"
            commands = {
                "bare": bare,
                "run": [*stormlog, "run", "--heap", "--dir", runs, "--", *bare],
                "output": [*stormlog, "run", "--heap", "--dir", runs, "-f", "-o", output, "--", *bare],
                "memray": [
                    sys.executable,
                    "-m",
                    "memray",
                    "run",
                    "-q",
                    "-f",
                    "-o",
                    f"{scratch}/m.bin",
                    str(script),
                ],
            }
            least: dict[str, float] = {}
            for turn in range(options.repeat):
                order = list(commands)[turn % 4 :] + list(commands)[: turn % 4]
                for who in order:
                    least[who] = min(least.get(who, 1e9), once(commands[who]))
                    # What a finisher still does is not to be measured with the next command.
                    while any(Path(scratch).rglob("*.live")):
                        time.sleep(0.01)
                    shutil.rmtree(runs, ignore_errors=True)
        added = {who: max(0.0, least[who] - least["bare"]) for who in commands}
        for who, of in ratios.items():
            of.append(added[who] / added["memray"])
        figures = [f"{least['bare'] * 1000:.0f}"]
        figures += [f"+{added[who] * 1000:.0f}" for who in ("run", "output", "memray")]
        figures += [f"{ratios[who][-1]:.2f}" for who in ("run", "output")]
        rows.append(f"| {name} | {' | '.join(figures)} |")
        print(rows[-1], file=sys.stderr)
    load = os.getloadavg()[0]
    head = [
        "# Whole added wall time on short programs",
        "",
        f"Milliseconds, {options.repeat} repetitions, {os.cpu_count()} processors, load {load:.1f}.",
        "",
        "| program | bare | `run --heap` | `run --heap -o` | Memray | ratio | ratio with `-o` |",
        "|---|---|---|---|---|---|---|",
    ]
    ends = [f"mean {sum(of) / len(of):.2f}, worst {max(of):.2f}" for of in ratios.values()]
    text = "\n".join([*head, *rows, "", f"To Memray: {ends[0]}; with `-o`: {ends[1]}.", ""])
    print(text)
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
