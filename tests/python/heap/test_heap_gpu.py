"""GPU memory in recordings that a program begins itself, with a stand-in for PyTorch's libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from places import PROGRAMS
from run_command import STORMLOG
from stormlog import heap

SOURCES = PROGRAMS / "heap"
MB = 1 << 20


def run(stand_in: Path, folder: Path, script: str, **env: str) -> Any:
    """The last line that a program printed, as JSON."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(script), encoding="utf-8")
    paths = os.pathsep.join([str(SOURCES), env.pop("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        env={**os.environ, "STAND_IN": str(stand_in), "PYTHONPATH": paths, **env},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("options", ["", "sample=True", "host=False"])
def test_a_late_recording_has_each_block_and_the_sum_of_those_before(
    stand_in: Path, tmp_path: Path, options: str
) -> None:
    script = f"""
        import json
        from stand_in import *
        from stormlog import heap
        cuda, c10, allocate, free = load()
        old = [allocate(0, 1 << 20, 1) for _ in range(10)]
        def build(): return list(map(allocate, [0] * 100, [4096] * 100, [2] * 100))
        def load_more(): return list(map(allocate, [0] * 10, [8192] * 10, [3] * 10))
        with heap.record("out.bin", {options}) as recording:
            new = build()
            more = load_more()
            for block in new[:30]: free(0, block, 4096, 2)
            said = counts()
        print(json.dumps(said))
    """
    counted = run(stand_in, tmp_path, script)
    found = heap.stats(tmp_path / "out.bin", memory="cuda:0")
    assert (found["allocations"], found["total_allocated_bytes"]) == (110, 100 * 4096 + 10 * 8192)
    assert found["before_recording_bytes"] == 10 * MB
    printed = subprocess.run(
        [*STORMLOG, "stats", str(tmp_path / "out.bin"), "--memory", "cuda:0", "--json"],
        capture_output=True,
        check=True,
    )
    command = json.loads(printed.stdout)
    assert {key: found[key] for key in command} == command and command["memory"] == "cuda:0"
    assert found["live_bytes"] == counted["allocated"] and found["peak_bytes"] == counted["peak"]
    places = {
        (Path(row["file"]).name, row["function"]): row["bytes"] for row in found["top"] if row.get("file")
    }
    assert places["program.py", "build"] == 70 * 4096
    assert places["program.py", "load_more"] == 10 * 8192


def test_a_program_can_ask_where_its_own_blocks_came_from(stand_in: Path, tmp_path: Path) -> None:
    script = """
        import json
        from stand_in import *
        from stormlog import heap, _native
        from stormlog._torch.recorded_stacks import complete, stacks_by_address
        cuda, c10, allocate, free = load()
        def weights(): return allocate(0, 1 << 20, 1)
        def batch(): return allocate(0, 1 << 16, 2)
        heap.start("out.bin")
        kept, gone = weights(), [batch() for _ in range(5)]
        for block in gone[:4]: free(0, block, 1 << 16, 2)
        cuda.stand_in_capacity(1 << 21)
        refused = allocate(0, 1 << 22, 3)
        stacks = {address: frames[0]["name"] for address, frames in stacks_by_address(0).items()}
        assert stacks == {kept: "weights", gone[4]: "batch"}, stacks
        assert _native.heap.own_device_blocks("cuda:1", 0) is None
        blocks = [
            {"address": kept, "size": 1 << 20, "state": "active_allocated"},
            {"address": gone[4], "size": 1 << 16, "state": "active_allocated"},
            {"address": gone[0], "size": 1 << 16, "state": "inactive"},
        ]
        trace = [{"action": "alloc", "addr": address, "size": 9} for address in gone]
        snapshot = {"segments": [{"device": 0, "blocks": blocks}], "device_traces": [trace]}
        assert complete(snapshot, 0, None, None, ())
        print(json.dumps([
            refused,
            [block.get("frames", [{"name": None}])[0]["name"] for block in blocks],
            [entry["frames"][0]["name"] for entry in trace if entry["action"] == "alloc"],
            [entry["size"] for entry in trace if entry["action"] == "oom"],
            snapshot["stormlog"],
        ]))
        heap.stop()
    """
    refused, blocks, trace, failed, added = run(stand_in, tmp_path, script)
    assert refused == 0
    assert blocks == ["weights", "batch", None]
    assert trace == ["batch"] * 5
    assert failed == [1 << 22] and added == {"added": ["stacks", "oom"]}


def test_memory_of_the_engines_threads_is_that_of_the_line_that_called_backward(
    stand_in: Path, tmp_path: Path
) -> None:
    script = """
        import json, sys, types
        from stand_in import *
        from stormlog import heap
        cuda, c10, allocate, free = load()

        # Of PyTorch: the one object that every backward pass goes through.
        class EngineBase:
            def run_backward(self): return cuda.stand_in_engine(0, 4096, 50, 1)
        torch = types.ModuleType("torch")
        torch._C = types.SimpleNamespace()
        class Variable: _execution_engine = EngineBase()
        torch.autograd = types.SimpleNamespace(Variable=Variable)
        sys.modules["torch"] = torch

        def step(): Variable._execution_engine.run_backward()
        heap.start("out.bin")
        step()
        heap.stop()
        print(json.dumps(counts()))
    """
    counted = run(stand_in, tmp_path, script)
    found = heap.stats(tmp_path / "out.bin", memory="cuda:0")
    assert counted["allocations"] == found["allocations"] >= 50
    (row,) = found["top"]
    assert (row["function"], row["bytes"]) == ("step", counted["allocated"])


def test_auto_records_gpu_memory_without_a_supervisor(stand_in: Path, tmp_path: Path) -> None:
    script = """
        import json, os, signal
        import stormlog.auto
        from stand_in import *
        cuda, c10, allocate, free = load()
        import torch
        def cache(): return list(map(allocate, [0] * 20, [1 << 20] * 20, [1] * 20))
        kept = cache()
        print(json.dumps(counts()), flush=True)
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
        os._exit(0)
    """
    folder = str(PROGRAMS / "stand_in")
    counted = run(stand_in, tmp_path, script, STORMLOG_DIR=str(tmp_path / "runs"), PYTHONPATH=folder)
    (host,) = (tmp_path / "runs").glob("*/rank0-pid*-host")
    found = heap.stats(host / "heap.bin")
    (device,) = found["devices"]
    assert device["live_bytes"] == counted["allocated"] == 20 * MB
    assert (device["top"][0]["function"], device["before_recording_bytes"]) == ("cache", 0)
