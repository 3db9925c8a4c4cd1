"""What the observer of an out-of-memory error leaves alive, with the real PyTorch.

There is no GPU here: tensors of the CPU stand for those of one, and the snapshot is a stand-in that does to
the frames around it what the real one was seen to do.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stormlog import hidden_memory
from stormlog._torch import auto as _auto
from stormlog._torch import auto_device as _auto_device
from stormlog._torch import cuda_tensors as _cuda_tensors
from stormlog._torch.auto_settings import Settings
from stormlog.device_collectors import CPUDeviceCollector

torch: Any = pytest.importorskip("torch")
EMPTY: dict[str, Any] = {"segments": [], "device_traces": [[]]}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A device is recorded into the directory; what PyTorch would tell of it are stand-ins."""
    monkeypatch.setattr(_auto_device, "_collector", lambda index: CPUDeviceCollector())
    monkeypatch.setattr(_cuda_tensors, "_is_on", lambda tensor, index: tensor.device.type == "cpu")
    monkeypatch.setattr(hidden_memory, "report", lambda device=0: {})
    monkeypatch.setattr(_auto, "STATE", _auto._State())
    _auto.STATE.settings = Settings.of({"STORMLOG_DIR": str(tmp_path)})
    yield tmp_path
    _auto._end()


def bundles(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("cuda_oom.json"))]


def test_memory_is_freed_when_the_error_is_caught(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def snapshot() -> dict[str, Any]:
        # As `torch.fx.wrap` does in modules that the real one imports.
        kept.append(sys._getframe())
        return EMPTY

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
    made: list[weakref.ref[Any]] = []

    def block(size: int) -> Any:
        made.append(weakref.ref(tensor := torch.empty(size)))
        return tensor

    def step() -> None:
        held = [block(1000) for _ in range(5)]
        _auto._ran_out(0, 1 << 30, 1 << 30, 1 << 20)
        raise torch.OutOfMemoryError(f"with {len(held)} tensors held")

    gc.collect()
    gc.disable()
    try:
        for number in range(1, 4):
            with pytest.raises(torch.OutOfMemoryError):
                step()
            alive = sum(reference() is not None for reference in made)
            assert alive == 0, f"{alive} of {len(made)} tensors live on"
            assert len(kept) == number, "a bundle was written"
    finally:
        gc.enable()
    stacks = [page["stack"] for page in bundles(recorded)]
    assert len(stacks) == 3 and all("step" in "".join(stack[:2]) for stack in stacks), stacks
    assert [page["problems"] for page in bundles(recorded)] == [[], [], []]


def test_bundle_that_fails_does_not_affect_others(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> bool:
        raise RuntimeError("no room")

    monkeypatch.setattr(_auto_device, "write", broken)
    _auto._ran_out(0, 1 << 30, 1 << 30, 1 << 20)
    assert bundles(recorded) == [] and capfd.readouterr() == ("", "")


def test_a_snapshot_imports_nothing() -> None:
    """The real one looks for `torch._inductor.codecache` to name the frames of compiled code."""
    program = """
import sys, threading, torch
from stormlog._torch import cuda_snapshot as _cuda_snapshot
seen = []
def look():
    inductor = getattr(torch, "_inductor", None)
    return inductor is not None and hasattr(inductor, "codecache")
def snapshot():
    seen.append(look())
    return {}
torch.cuda.memory._snapshot = snapshot
_cuda_snapshot.allocator_snapshot(torch)
assert seen == [False] and "torch._inductor" not in sys.modules, "not by us"
assert "_inductor" not in vars(torch), "nothing is left"
def snapshot():
    other = threading.Thread(target=lambda: seen.append(torch._inductor.config is not None))
    other.start(), other.join()
    seen.append(look())
    return {}
torch.cuda.memory._snapshot = snapshot
_cuda_snapshot.allocator_snapshot(torch)
assert seen[1] is True, "who really wants it gets it"
assert torch._inductor is sys.modules["torch._inductor"]
torch.cuda.memory._snapshot = lambda: seen.append(torch._inductor)
_cuda_snapshot.allocator_snapshot(torch)
assert seen[-1] is sys.modules["torch._inductor"], "one that is there is used"
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
