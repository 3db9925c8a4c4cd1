#!/usr/bin/env python3
"""Lists many runs: `stormlog sessions` and `stormlog query runs` over COUNT run directories.

One real run of `true` is copied COUNT times; each copy has a directory name, a session id and times of its
own. A log segment repeats the session id in its records, so their checksums are made again
(crates/ring/src/layout.rs).

    bench/many_runs.py                       # 10,000 runs, with the `stormlog` on PATH
    bench/many_runs.py --command target/debug/stormlog --count 1000 --keep DIR
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import tempfile
import time
import uuid
import zlib
from pathlib import Path

HEADER_BYTES = 4096
PAYLOAD_BYTES, STATE, DEFINITION, END = 0xFFFFFF, 3 << 62, 1 << 32, int.from_bytes(b"the end\xc0", "little")
COMMANDS = (["sessions"], ["sessions", "--json"], ["query", "runs"], ["query", "sessions"])


def with_session(segment: bytes, old: bytes, new: bytes) -> bytes:
    """A log segment whose records have another session id of the same length."""
    made = bytearray(segment)
    at = HEADER_BYTES
    while at + 16 <= len(made):
        (tag,) = struct.unpack_from("<Q", made, at)
        if tag in (0, END):
            break
        length = tag & PAYLOAD_BYTES
        payload = bytes(made[at + 16 : at + 16 + length])
        if old in payload:
            assert not tag & DEFINITION, "the records of a longer run refer to their session by a hash"
            payload = payload.replace(old, new)
            lead = struct.pack("<QQ", (at - HEADER_BYTES) // 8, tag & ~STATE)
            struct.pack_into("<I", made, at + 8, zlib.crc32(lead + payload))
            made[at + 16 : at + 16 + length] = payload
        at += 16 + (length + 7) // 8 * 8
    return bytes(made)


def make(stormlog: str, root: Path, count: int) -> None:
    """Fills `root` with `count` runs."""
    template = root.with_name(root.name + ".template")
    subprocess.run([stormlog, "run", "--quiet", "--dir", template, "true"], check=True)
    (run,) = template.iterdir()
    (session,) = (path.parent for path in run.rglob("session.json"))
    files = {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    directories = [path.relative_to(run) for path in run.rglob("*") if path.is_dir()]
    text = files[session.relative_to(run) / "session.json"].decode()
    old = text.partition('"session_id": "')[2].partition('"')[0].encode()
    started = text.partition('"started_at_ns": ')[2].partition(",")[0].encode()
    for number in range(count):
        copy = root / f"{run.name[:-4]}{number:06d}"
        copy.mkdir(parents=True)
        for directory in directories:
            (copy / directory).mkdir(parents=True, exist_ok=True)
        new = str(uuid.UUID(int=number, version=4)).encode()
        for name, content in files.items():
            if name.suffix == ".slog":
                changed = with_session(content, old, new)
            else:
                changed = content.replace(old, new).replace(started, str(int(started) + number).encode())
            (copy / name).write_bytes(changed)


def measure(words: list[str]) -> tuple[float, float, float, int]:
    """Seconds, seconds of processor time, peak resident MB and printed lines of a command."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        child = subprocess.Popen(words, stdout=output)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        assert os.waitstatus_to_exitcode(status) == 0, words
        output.seek(0)
        processor = used.ru_utime + used.ru_stime
        return seconds, processor, used.ru_maxrss * 1024 / 1e6, sum(1 for _ in output)


def main() -> None:
    """Makes the runs and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--command", default="stormlog", help="the program to measure")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="make the runs here and leave them; reused if they exist")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = asked.keep or Path(folder) / "runs"
        if not root.exists():
            make(asked.command, root, asked.count)
        print(f"{'command':<20}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'lines':>8}")
        for words in COMMANDS:
            seconds, processor, peak, lines = measure([asked.command, *words, str(root)])
            row = f"{' '.join(words):<20}{seconds:>9.2f}{processor:>9.2f}{peak:>9.0f}{lines:>8}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
