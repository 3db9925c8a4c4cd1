"""Our stacks in PyTorch's history, by address and order: real histories of real programs, recorded both ways.

`crates/heap/tests/data/reports` has what PyTorch reported of each allocation and, of the same run, its own
history without stacks, which began after the first allocation.
"""

from __future__ import annotations

import copy
import gzip
import json
import pickle
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from places import ROOT
from stormlog import _native
from stormlog._torch.recorded_stacks import complete

REPORTS = ROOT / "crates" / "heap" / "tests" / "data" / "reports"
MB = 1 << 20


class Block(NamedTuple):
    address: int
    size: int
    stack: int


class Line(NamedTuple):
    file: str
    line: int
    function: str


class Report(NamedTuple):
    action: str
    address: int
    size: int


def reports(case: str) -> list[Report]:
    """Up to the snapshot; what came after it are frees at the program's end."""
    with gzip.open(REPORTS / f"{case}.log.gz", "rt") as file:
        words = [line.split() for line in file]
    rows = [Report(row[0], int(row[1], 16), int(row[2])) for row in words if row[0] in "af"]
    counted = json.loads((REPORTS / f"{case}.json").read_text())
    return rows[: counted["allocation.all.allocated"] + counted["allocation.all.freed"]]


def history(case: str) -> dict[str, Any]:
    with gzip.open(REPORTS / f"{case}.pickle.gz", "rb") as file:
        found: dict[str, Any] = pickle.load(file)
    return found


def recorded(rows: list[Report]) -> SimpleNamespace:
    """As our recording has it, each allocation with a stack of its own."""
    live: dict[int, Block] = {}
    recent: list[Block] = []
    for row in rows:
        if row.action == "f":
            live.pop(row.address, None)
            continue
        block = Block(row.address, row.size, len(recent))
        recent.append(block)
        live[row.address] = block
    stacks = [[Line(f"/home/me/line_{number}.py", number + 1, "step")] for number in range(len(recent))]
    return SimpleNamespace(live=list(live.values()), recent=recent, stacks=stacks, failed_bytes=None)


@pytest.mark.parametrize("case", ["train", "amp", "streams", "graphs"])
@pytest.mark.parametrize("later", [0, 3])
def test_each_event_of_the_history_gets_the_stack_of_its_own_allocation(
    case: str, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = reports(case)
    snapshot = history(case)
    trace = snapshot["device_traces"][0]
    allocations = [entry for entry in trace if entry["action"] == "alloc"]
    # What other threads allocate between the snapshot and our reading.
    rows += [Report("a", 0x7000 + number, 512) for number in range(later)]
    known = recorded(rows)
    monkeypatch.setattr(_native.heap, "own_device_blocks", lambda device, recent: known)
    assert complete(snapshot, 0, None, None, ())
    named = [entry["frames"][0]["line"] - 1 for entry in allocations if entry.get("frames")]
    assert len(named) == len(allocations) > 100
    first = len(known.recent) - later - len(allocations)
    assert named == list(range(first, first + len(named))), "in order, none left out"
    for entry, number in zip(allocations, named, strict=True):
        block = known.recent[number]
        assert entry["addr"] == block.address and entry["size"] <= block.size
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    held = [block for block in blocks if block["state"] == "active_allocated"]
    assert held and all(block["frames"] for block in held)
    assert snapshot["stormlog"] == {"added": ["stacks"]}


def test_a_history_that_is_not_of_this_recording_gets_no_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, known = history("train"), recorded(reports("streams"))
    before = copy.deepcopy(snapshot["device_traces"])
    monkeypatch.setattr(_native.heap, "own_device_blocks", lambda device, recent: known)
    complete(snapshot, 0, None, None, ())
    assert snapshot["device_traces"] == before


def test_stacks_of_pytorchs_own_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = history("train")
    own = [{"filename": "/x.py", "line": 1, "name": "f"}]
    for entry in snapshot["device_traces"][0]:
        entry["frames"] = own
    known = recorded(reports("train"))
    monkeypatch.setattr(_native.heap, "own_device_blocks", lambda device, recent: known)
    assert not complete(snapshot, 0, None, None, ())
    assert all(entry["frames"] is own for entry in snapshot["device_traces"][0])


def test_the_failed_request_is_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native.heap, "own_device_blocks", lambda device, recent: None)
    snapshot: dict[str, Any] = {"segments": [], "device_traces": []}
    for _ in range(2):
        complete(snapshot, 1, 5 * MB, 7 * MB, ("/home/me/a.py:3 f", "<string> g"))
    assert snapshot["device_traces"][0] == []
    (event,) = snapshot["device_traces"][1]
    assert (event["action"], event["size"], event["device_free"]) == ("oom", 5 * MB, 7 * MB)
    assert event["frames"][0] == {"filename": "/home/me/a.py", "line": 3, "name": "f"}
