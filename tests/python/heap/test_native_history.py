"""The allocator's history: which signature is called, whose recording it is, what a bundle holds."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import time
import types
import weakref
from pathlib import Path
from typing import Any

import cuda_stand_in
import pytest
from stormlog import MemoryTracker, cuda_native_debug
from stormlog._torch.cuda_categories import workspace_bytes
from stormlog.cuda_native_debug import (
    cuda_memory_history,
    cuda_memory_history_supported,
    start_cuda_memory_history,
    stop_cuda_memory_history,
)

MB = 1 << 20


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = cuda_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def tracker_in(folder: Path, **options: Any) -> MemoryTracker:
    return MemoryTracker(
        0,
        sampling_interval=10,
        enable_oom_flight_recorder=True,
        oom_dump_dir=str(folder),
        enable_native_cuda_history=True,
        native_history_max_entries=500,
        **options,
    )


def test_the_signature_that_is_there_is_called(torch: Any) -> None:
    assert cuda_memory_history_supported()
    start_cuda_memory_history(trace_alloc_max_entries=70)
    stop_cuda_memory_history()
    (start, wanted), (stop, _) = torch.history.calls
    assert start == ("all",) and stop == (None,)
    assert wanted == {"context": "alloc", "stacks": "python", "max_entries": 70}


def test_an_older_signature_is_called_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = cuda_stand_in.make(newer_history=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with cuda_memory_history(trace_alloc_max_entries=70):
        assert torch.history.is_on
    assert torch.history.calls == [
        ((True,), {"trace_alloc_max_entries": 70}),
        ((False,), {"trace_alloc_max_entries": 1}),
    ]


def test_an_unknown_signature_is_an_error_that_names_it(torch: Any) -> None:
    torch.cuda.memory = types.SimpleNamespace(_record_memory_history=lambda on: None, _snapshot=dict)
    with pytest.raises(RuntimeError, match="unknown signature of _record_memory_history: on"):
        start_cuda_memory_history()


def test_without_torch_there_is_no_history() -> None:
    assert "torch" not in sys.modules
    assert not cuda_memory_history_supported()
    assert cuda_native_debug.cuda_memory_history_is_on() is None
    with pytest.raises(RuntimeError, match="unavailable in this PyTorch runtime"):
        start_cuda_memory_history()


def test_users_own_recording_continues(torch: Any, tmp_path: Path) -> None:
    torch.history._record_memory_history("all", max_entries=9)
    with cuda_memory_history():
        pass
    with tracker_in(tmp_path):
        pass
    assert torch.history.is_on and len(torch.history.calls) == 1


def test_trackers_share_one_recording(torch: Any, tmp_path: Path) -> None:
    first, second = tracker_in(tmp_path / "a"), tracker_in(tmp_path / "b")
    first.start_tracking()
    second.start_tracking()
    first.stop_tracking()
    assert torch.history.is_on
    second.stop_tracking()
    second.stop_tracking()
    assert not torch.history.is_on and len(torch.history.calls) == 2


@pytest.mark.parametrize("is_tracking", [True, False])
def test_a_bundle_holds_the_allocators_state(torch: Any, tmp_path: Path, is_tracking: bool) -> None:
    weight = cuda_stand_in.Tensor(torch.allocators[0], MB)
    model = cuda_stand_in.Module(**{"layer.weight": weight})
    tracker = tracker_in(tmp_path)
    if is_tracking:
        tracker.start_tracking()
    with pytest.raises(RuntimeError), tracker.capture_oom("train", {"batch_size": 8}):
        assert torch.history.is_on
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    tracker.stop_tracking()
    assert not torch.history.is_on and tracker.last_oom_dump_path is not None
    bundle = Path(tracker.last_oom_dump_path)
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["native_history_enabled"] is True
    files = manifest["native_history_files"]
    assert {"cuda_allocator_snapshot.pickle", "cuda_tensor_attribution.json"} <= set(files)
    assert set(manifest["files"]) == {file.name for file in bundle.iterdir()}
    metadata = json.loads((bundle / "metadata.json").read_text())["custom_metadata"]
    assert metadata["native_history_files"] == files and metadata["batch_size"] == 8
    with (bundle / "cuda_allocator_snapshot.pickle").open("rb") as file:
        assert pickle.load(file)["allocator_settings"] == {"x": 1}, "nothing of it is left out"
    blocks = json.loads((bundle / "cuda_allocation_attribution.json").read_text())
    assert [one["names"] for one in blocks["attributed_allocations"]] == [["layer.weight"]]
    assert blocks["attributed_allocations"][0]["tensors"][0]["size_bytes"] == MB
    assert model.parameters_by_name["layer.weight"] is weight


def test_a_history_that_cannot_be_had_costs_no_bundle(
    torch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(enabled: str | None = "all", max_entries: int = 0) -> None:
        raise RuntimeError("no history today")

    torch.history._record_memory_history = refuse
    tracker = tracker_in(tmp_path)
    with tracker:
        path = tracker.handle_exception(MemoryError())
    assert path is not None and (Path(path) / "events.json").exists()
    assert "The allocator's history is not recorded: no history today" in caplog.text


def test_a_snapshot_that_fails_costs_no_bundle(
    torch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.history._snapshot = lambda: 5
    with tracker_in(tmp_path) as tracker:
        path = tracker.handle_exception(MemoryError())
    assert path is not None and json.loads((Path(path) / "manifest.json").read_text())["files"]
    assert "lacks the allocator's history: Unsupported snapshot payload type: int" in caplog.text


def test_retention_holds_with_the_history_in_it(torch: Any, tmp_path: Path) -> None:
    with tracker_in(tmp_path, oom_max_dumps=2) as tracker:
        paths = [tracker.handle_exception(MemoryError()) for _ in range(4)]
    assert sorted(str(path) for path in tmp_path.iterdir()) == sorted(str(path) for path in paths[-2:])


def test_a_workspace_is_known_by_its_size(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert workspace_bytes(torch, 0) == 32 * MB
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
    size = workspace_bytes(torch, 0)
    assert size == 8320 << 10
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "nonsense")
    assert workspace_bytes(torch, 0) is None
    blocks = [{"size": size, "state": "active_allocated"} for _ in range(2)]
    segments = [{"address": 1 << 40, "stream": stream, "blocks": blocks} for stream in (0, 7)]
    found = cuda_native_debug.memory_categories({"segments": segments}, {}, size)["categories"]
    assert {name: part["blocks"] for name, part in found.items()} == {"workspaces": 2, "unknown": 2}


def test_every_allocated_byte_has_a_category(torch: Any) -> None:
    device = torch.allocators[0]
    weight = cuda_stand_in.Parameter(device, 8 * MB)
    weight.grad = cuda_stand_in.Tensor(device, 8 * MB)
    moments = [cuda_stand_in.Tensor(device, 8 * MB) for _ in range(2)]
    optimizer = cuda_stand_in.Optimizer(weight={"exp_avg": moments[0], "more": [moments[1]], "step": 3})
    output = cuda_stand_in.Tensor(device, 4 * MB)
    output.grad_fn, output.is_leaf = object(), False
    model = cuda_stand_in.Module(weight=weight)
    model.kept = [cuda_stand_in.Tensor(device, MB)]
    inputs = cuda_stand_in.Tensor(device, 2 * MB)
    frames = [{"filename": "train.py", "line": 7, "name": "step"}]
    held = [weight, weight.grad, *moments, output, model.kept[0], inputs]
    blocks = [
        {"address": one.address, "size": one.size, "state": "active_allocated", "frames": frames}
        for one in held
    ]
    start = inputs.address + inputs.size
    blocks += [
        {"address": start, "size": 3 * MB, "state": "active_allocated"},
        {"size": 5 * MB, "state": "inactive"},
        {"size": MB, "state": "active_pending_free"},
    ]
    pool = {"address": 1, "segment_pool_id": (0, 1), "total_size": 6 * MB, "blocks": []}
    pool["blocks"] = [{"size": 6 * MB, "state": "active_allocated"}]
    elsewhere = {"device": 1, "total_size": 99, "blocks": [{"size": 99, "state": "active_allocated"}]}
    snapshot = {
        "segments": [{"address": weight.address, "total_size": 48 * MB, "blocks": blocks}, pool, elsewhere],
        "allocator_settings": {"expandable_segments": False},
    }
    index = cuda_native_debug.build_cuda_tensor_attribution_index(0)
    found = cuda_native_debug.memory_categories(snapshot, index)
    assert {name: one["bytes"] // MB for name, one in found["categories"].items()} == {
        "optimizer_state": 16,
        "parameters": 8,
        "gradients": 8,
        "graph_pools": 6,
        "activations": 4,
        "unknown": 3,
        "data": 2,
        "buffers": 1,
        "awaiting_free": 1,
    }
    assert found["allocated_bytes"] == 49 * MB and found["reserved_bytes"] == 54 * MB
    assert (found["largest_free_block_bytes"], found["free_in_cache_bytes"]) == (5 * MB, 5 * MB)
    assert found["top_stacks"][0]["frames"] == ["train.py:7 step"]
    assert found["top_stacks"][0]["bytes"] == 39 * MB
    assert found["allocator_settings"] == {"expandable_segments": False}
    assert optimizer.state and model.parameters_by_name


def test_the_index_keeps_no_tensor(torch: Any) -> None:
    tensor = cuda_stand_in.Tensor(torch.allocators[0], MB)
    index = cuda_native_debug.build_cuda_tensor_attribution_index("cuda:0")
    assert index["storage_pointer_count"] == 1 and index["device_index"] == 0
    seen = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert seen() is None


def test_empty_intervals_are_not_left_out() -> None:
    tracker = MemoryTracker("cpu", sampling_interval=1000)
    with tracker:
        time.sleep(0.25)
    timeline = tracker.get_memory_timeline(0.05)
    steps = [
        later - earlier
        for earlier, later in zip(timeline["timestamps"], timeline["timestamps"][1:], strict=False)
    ]
    assert len(steps) >= 4 and steps == pytest.approx([0.05] * len(steps), abs=1e-5)
    assert all(size for size in timeline["allocated"]), "what held before holds on"
    assert len({len(column) for column in timeline.values()}) == 1
    with pytest.raises(ValueError, match="would give"):
        tracker.get_memory_timeline(1e-9)
