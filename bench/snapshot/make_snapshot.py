"""Blow a recorded snapshot up: its trace again and again, later each time, until the file is large enough.

Stacks stay what they are in real files: each run through the trace has list objects of its own, which repeat
the same few hundred values. The pickle of one run is a template; runs differ in memo numbers and times only,
so a gigabyte takes seconds and hardly any memory.

    python make_snapshot.py IN.pickle[.gz] OUT.pickle MEGABYTES

With `--steady EVENTS` in the place of the size, steps of a training loop are repeated that start and end
with the same memory, so that the whole is what the allocator would have done in a longer run (and a replay
can be proven on it):

    python make_snapshot.py gpt-train.pickle.gz OUT.pickle --steady 300000
"""

from __future__ import annotations

import gzip
import pickle
import pickletools
import struct
import sys
from pathlib import Path
from typing import Any

BATCH = 1000  # elements that the pickler puts between MARK and APPENDS


def copy_of(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same events with lists and strings of their own."""
    lists: dict[int, list[Any]] = {}
    copies = []
    for entry in trace:
        copy = dict(entry)
        if "frames" in copy:
            copy["frames"] = lists.setdefault(id(entry["frames"]), list(entry["frames"]))
        if "compile_context" in copy:
            copy["compile_context"] = "".join(list(copy["compile_context"]))
        copies.append(copy)
    return copies


def main() -> None:
    """Write the large file."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    opener: Any = gzip.open if source.suffix == ".gz" else open
    with opener(source, "rb") as file:
        snapshot = pickle.load(file)  # our own recording, not a stranger's file
    if sys.argv[3] == "--steady":
        count = lengthen(snapshot, int(sys.argv[4]))
        with target.open("wb") as out:
            pickle.dump(snapshot, out, 4)
        print(f"{target}: {target.stat().st_size / 1e6:.0f} MB, {count} events")
        return
    megabytes = float(sys.argv[3])
    trace = max(snapshot["device_traces"], key=len)
    del trace[len(trace) // BATCH * BATCH :]
    runs = [trace, copy_of(trace), copy_of(trace)]
    del snapshot["device_traces"]  # so that it comes last again
    snapshot["device_traces"] = [[entry for run in runs for entry in run]]
    data = bytearray(pickle.dumps(snapshot, 4))

    # The MARK of every batch of the long list, the memo slots before it, and what follows its last APPENDS.
    depth = tail = memo = 0
    batches: list[int] = []
    slots: list[int] = []
    gets: list[tuple[int, int]] = []
    longs: list[tuple[int, int]] = []
    frames: list[int] = []
    for opcode, argument, at in pickletools.genops(bytes(data)):
        name, position = opcode.name, at or 0
        if name == "MARK":
            if depth == 1:
                batches.append(position)
                slots.append(memo)
            depth += 1
        elif name in ("SETITEMS", "APPENDS"):
            depth -= 1
            if depth == 1 and name == "APPENDS":
                tail = position + 1
        elif name == "MEMOIZE":
            memo += 1
        elif name == "FRAME":
            frames.append(position)
        elif name == "LONG_BINGET" and isinstance(argument, int):
            gets.append((position + 1, argument))
        elif name == "LONG1" and isinstance(argument, int) and argument > 10**15:
            longs.append((position + 2, argument))
    count = len(trace) // BATCH
    batches, slots = batches[-3 * count :], slots[-3 * count :]
    start, end = batches[2 * count], tail
    first_slot = slots[2 * count]
    slots_per_run = slots[2 * count] - slots[count]
    template = data[start:end]
    own = [(p - start, a) for p, a in gets if start <= p < end and a >= first_slot]
    times = [(p - start, a) for p, a in longs if start <= p < end]
    span = times[-1][1] - times[0][1] + 1

    with target.open("wb") as out:
        out.write(strip(data, frames, 0, end))
        round_number = 0
        inner = [p for p in frames if start <= p < end]
        while out.tell() < megabytes * 1e6:
            round_number += 1
            run = bytearray(template)
            for place, slot in own:
                struct.pack_into("<I", run, place, slot + slots_per_run * round_number)
            for place, time in times:
                run[place : place + 7] = (time + span * round_number).to_bytes(7, "little")
            out.write(strip(run, [p - start for p in inner], 0, len(run)))
        # What follows the trace may refer to the memo, but only to what came before these runs.
        out.write(strip(data, frames, end, len(data)))
    print(f"{target}: {target.stat().st_size / 1e6:.0f} MB, {len(trace) * (3 + round_number)} events")


def lengthen(snapshot: dict[str, Any], events: int) -> int:
    """Repeat the steps between two equal states of memory until there are enough events."""
    trace = max(snapshot["device_traces"], key=len)
    marks = [
        note["time_us"]
        for note in snapshot["external_annotations"]
        if note["stage"] == "END" and note["name"].startswith("Optimizer.zero_grad")
    ]
    live: dict[int, int] = {}
    states: dict[frozenset[tuple[int, int]], int] = {}
    start = end = 0
    for place, entry in enumerate(trace):
        if marks and entry["time_us"] > marks[0]:
            del marks[0]
            start = states.setdefault(frozenset(live.items()), place)
            if start < place:
                end = place
                break
        if entry["action"] in ("alloc", "segment_alloc", "segment_map"):
            live[entry["addr"]] = entry["size"]
        elif entry["action"] in ("free_completed", "segment_free", "segment_unmap"):
            live.pop(entry["addr"], None)
    if end == 0:
        raise SystemExit("no two steps of this recording start with the same memory")
    steps = trace[start:end]
    span = trace[end]["time_us"] - trace[start]["time_us"]
    rounds = max(0, (events - len(trace)) // len(steps))
    rest = trace[end:]
    del trace[end:]
    for number in range(1, rounds + 1):
        trace.extend({**entry, "time_us": entry["time_us"] + span * number} for entry in steps)
    trace.extend({**entry, "time_us": entry["time_us"] + span * rounds} for entry in rest)
    return len(trace)


def strip(data: bytearray, frames: list[int], start: int, end: int) -> bytes:
    """Bytes `start` to `end` without the FRAME opcodes, whose lengths no longer hold."""
    parts, at = [], start
    for frame in frames:
        if start <= frame < end:
            parts.append(data[at:frame])
            at = frame + 9
    parts.append(data[at:end])
    return b"".join(parts)


if __name__ == "__main__":
    main()
