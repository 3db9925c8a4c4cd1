"""Profilers with the real PyTorch, on whatever this machine has; what only a GPU shows is in tests/gpu."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import stormlog
from stormlog import context_profiler, cuda_native_debug
from stormlog.profiler import GPUMemoryProfiler, TensorTracker

torch: Any = pytest.importorskip("torch")
HAS_GPU = torch.cuda.is_available()
MB = 1 << 20


@pytest.fixture
def profiler() -> GPUMemoryProfiler:
    return GPUMemoryProfiler("cpu", track_tensors=True)


def test_torch_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys, stormlog, stormlog.profiler, stormlog.context_profiler, stormlog.cuda_native_debug;"
        "stormlog.GPUMemoryProfiler('cpu'); stormlog.profile_function; print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_the_peak_inside_a_call_is_true(profiler: GPUMemoryProfiler) -> None:
    def transient() -> None:
        torch.ones(64 * MB, dtype=torch.uint8).sum()

    transient()  # what PyTorch sets up the first time is not the call's
    with profiler.profile_context("outer"):
        result = profiler.profile_function(transient)
    assert result.peak_memory_usage() - result.memory_before.allocated_memory >= 60 * MB
    assert abs(result.memory_diff()) < 30 * MB
    assert profiler.results[-1].peak_memory_usage() >= result.peak_memory_usage()


def test_tensors_are_counted(profiler: GPUMemoryProfiler) -> None:
    kept = []
    with profiler.profile_context("make"):
        kept += [torch.zeros(1) for _ in range(5)]
    assert profiler.results[0].tensors_created == 5
    tracker = TensorTracker("cpu")
    before = tracker.count_tensors()
    kept.clear()
    gc.collect()
    assert tracker.count_tensors() == before - 5
    assert TensorTracker("meta").count_tensors() == 0


def test_the_default_device_is_the_one_there_is() -> None:
    assert GPUMemoryProfiler().device == torch.device("cuda:0" if HAS_GPU else "cpu")
    assert GPUMemoryProfiler(torch.device("cpu")).device == torch.device("cpu")
    with pytest.raises(ValueError, match="is not available"):
        GPUMemoryProfiler(99)
    with pytest.raises(ValueError, match="Only CUDA/ROCm or MPS"):
        GPUMemoryProfiler("meta")
    if not HAS_GPU:
        with pytest.raises(ValueError, match="there are 0 CUDA devices here"):
            GPUMemoryProfiler("cuda")


def test_a_profiled_module_is_the_module(profiler: GPUMemoryProfiler) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    module = stormlog.ProfiledModule(inner, name="net", profiler=profiler)
    assert isinstance(module, torch.nn.Module) and isinstance(module, stormlog.ProfiledModule)
    inputs = torch.randn(5, 4)
    assert torch.equal(module(inputs), inner(inputs))
    assert [result.function_name for result in profiler.results] == ["net_forward"]
    module(inputs).sum().backward()
    assert all(parameter.grad is not None for parameter in inner.parameters())
    assert list(module.state_dict()) == [f"module.{name}" for name in inner.state_dict()]
    assert module.append is not None, "what it lacks is the wrapped module's"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = module.no_such_thing
    assert module.eval().training is False and inner.training is False


def test_a_profiled_module_can_be_copied_and_saved(profiler: GPUMemoryProfiler) -> None:
    module = stormlog.ProfiledModule(torch.nn.Linear(2, 2), profiler=profiler)
    twin = copy.deepcopy(module)
    assert twin.profiler is profiler and twin.module is not module.module
    inputs = torch.ones(1, 2)
    assert torch.equal(twin(inputs), module(inputs))
    assert [result.function_name for result in profiler.results] == ["Linear_forward"] * 2
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(inputs), module(inputs))
    assert loaded.profiler is context_profiler.get_global_profiler()


def test_an_exception_in_a_module_is_its_own(profiler: GPUMemoryProfiler) -> None:
    module = stormlog.MemoryProfiler("cpu").wrap_module(torch.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        module(torch.ones(3, 5))
    assert module.profiler.results[0].memory_after.operation == "after_Linear_forward_error"


def test_training_is_profiled_and_changes_no_weight() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    before = copy.deepcopy(model.state_dict())
    batches = [(torch.randn(4, 8), torch.zeros(4)) for _ in range(20)]
    report = stormlog.profile_model_training(model, batches, epochs=2, device="cpu")
    assert [one["batches_profiled"] for one in report["epoch_summaries"]] == [11, 11]
    assert all(one["execution_time"] > 0 for one in report["batch_results"])
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_signature_of_this_pytorch_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = torch.cuda.memory
    if not hasattr(memory, "_record_memory_history"):
        pytest.skip("this PyTorch records no history")
    signature = inspect.signature(memory._record_memory_history)
    calls: list[Any] = []

    def record(*args: Any, **kwargs: Any) -> None:
        calls.append(dict(signature.bind(*args, **kwargs).arguments))

    record.__signature__ = signature  # type: ignore[attr-defined]
    monkeypatch.setattr(memory, "_record_memory_history", record)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cuda_native_debug.start_cuda_memory_history(trace_alloc_max_entries=77)
    cuda_native_debug.stop_cuda_memory_history()
    assert calls[0]["enabled"] == "all" and calls[0]["max_entries"] == 77
    assert calls[1] == {"enabled": None}


def test_a_snapshot_becomes_pytorchs_own_pages(tmp_path: Path) -> None:
    frame = {"filename": "train.py", "line": 3, "name": "step"}
    block = {
        "address": 4096,
        "size": 2048,
        "requested_size": 2000,
        "state": "active_allocated",
        "frames": [frame],
    }
    segment = {
        "device": 0, "address": 4096, "total_size": 4096, "allocated_size": 2048, "active_size": 2048,
        "requested_size": 2000, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": [],
        "blocks": [block, {**block, "address": 6144, "state": "inactive"}],
    }  # fmt: skip
    entry = {"action": "alloc", "addr": 4096, "size": 2048, "stream": 0, "time_us": 1, "frames": [frame]}
    snapshot = {"segments": [segment], "device_traces": [[entry]], "allocator_settings": {}}
    index = {
        "device_index": 0,
        "storage_pointer_count": 1,
        "attributed_storage_pointers": [{"storage_ptr_int": 4096, "names": ["w"], "tensors": []}],
    }
    files = cuda_native_debug.write_cuda_snapshot_artifacts(
        tmp_path, snapshot, index, history_recorded=True, device=0
    )
    facts = json.loads((tmp_path / "cuda_native_debug_metadata.json").read_text())
    assert facts["warnings"] == [] and facts["trace_html_written"] is True
    assert facts["attributed_allocation_count"] == 1
    assert set(files) == {file.name for file in tmp_path.iterdir()}
    assert "TOTAL MEM: 2.0KiB" in (tmp_path / "cuda_allocator_trace.txt").read_text()


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")
def test_cpu_only_pytorch_is_reported_as_such() -> None:
    assert stormlog.get_gpu_info() == {"error": "CUDA is not available"}
    assert stormlog.check_memory_fragmentation() == {"error": "CUDA is not available"}
    assert "Suggestions" in stormlog.memory_summary()
    info = stormlog.get_system_info()
    assert info["torch_available"] and info["detected_backend"] == "cpu"
    assert not cuda_native_debug.cuda_memory_history_supported()
    with pytest.raises(RuntimeError, match="unavailable in this PyTorch runtime"):
        cuda_native_debug.start_cuda_memory_history()
    with stormlog.MemoryTracker(sampling_interval=10) as tracker:
        assert tracker.backend == "cpu" and tracker.get_events("sample")
