"""`GPUMemoryProfiler` on a stand-in for CUDA whose allocator counts, and on this process without any GPU."""

from __future__ import annotations

import builtins
import contextlib
import gc
import mmap
import sys
import threading
import weakref
from typing import Any

import cuda_stand_in
import pytest
import stormlog
from stormlog import errors
from stormlog._torch import meter as _meter
from stormlog.profiler import GPUMemoryProfiler, TensorTracker
from stormlog.utils import MemoryContext

MB = 1 << 20


@pytest.fixture(params=["one call for all counters", "public functions only"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = cuda_stand_in.make(devices=2, cheap_stats=request.param.startswith("one"))
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def transient(allocator: cuda_stand_in.Allocator, size: int) -> None:
    allocator.take(size)
    allocator.give(size)


def test_nested_blocks_keep_the_outer_peak(torch: Any) -> None:
    device = torch.allocators[0]
    device.take(100)
    profiler = GPUMemoryProfiler()
    with profiler.profile_context("outer"):
        transient(device, 900)
        with profiler.profile_context("first"):
            transient(device, 50)
        with profiler.profile_context("second"):
            device.take(200)
            with profiler.profile_context("innermost"):
                transient(device, 300)
        transient(device, 10)
    peaks = {result.function_name: result.peak_memory_usage() for result in profiler.results}
    assert peaks == {"outer": 1000, "first": 150, "second": 600, "innermost": 600}
    assert [result.function_name for result in profiler.results] == ["first", "innermost", "second", "outer"]


def test_an_inner_peak_is_the_outers_too(torch: Any) -> None:
    device, profiler = torch.allocators[0], GPUMemoryProfiler()
    with profiler.profile_context("outer"), profiler.profile_context("inner"):
        transient(device, 700)
    assert {result.peak_memory_usage() for result in profiler.results} == {700}
    # What was before a block is not in it.
    with profiler.profile_context("after"):
        transient(device, 5)
    assert profiler.results[-1].peak_memory_usage() == 5


def test_two_profilers_and_a_reset_share_the_devices_peak(torch: Any) -> None:
    device = torch.allocators[0]
    one, other = GPUMemoryProfiler(), GPUMemoryProfiler()
    with one.profile_context("outer"):
        transient(device, 400)
        other.profile_function(lambda: transient(device, 30))
        other.clear_results()
    assert one.results[0].peak_memory_usage() == 400


def test_a_memory_context_inside_costs_the_outer_nothing(torch: Any) -> None:
    device, profiler = torch.allocators[0], GPUMemoryProfiler()
    with profiler.profile_context("outer"):
        transient(device, 400)
        with MemoryContext("inner") as context:
            transient(device, 50)
            device.take(7)
    assert (context.peak_memory, context.start_memory, context.end_memory) == (50, 0, 7)
    assert profiler.results[0].peak_memory_usage() == 400


def test_devices_are_apart(torch: Any) -> None:
    first, second = GPUMemoryProfiler(0), GPUMemoryProfiler("cuda:1")
    with first.profile_context("a"), second.profile_context("b"):
        transient(torch.allocators[0], 300)
        torch.allocators[1].take(70)
    assert first.results[0].peak_memory_usage() == 300 and first.results[0].memory_diff() == 0
    assert second.results[0].peak_memory_usage() == 70 and second.results[0].memory_before.device_id == 1
    assert str(second.device) == "cuda:1"


def test_threads_do_not_take_each_others_peak(torch: Any) -> None:
    device, profiler = torch.allocators[0], GPUMemoryProfiler()
    inside, may_end = threading.Event(), threading.Event()

    def long() -> None:
        with profiler.profile_context("long"):
            transient(device, 800)
            inside.set()
            may_end.wait(10)

    thread = threading.Thread(target=long)
    thread.start()
    assert inside.wait(10)
    for number in range(20):
        with profiler.profile_context(f"short_{number}"):
            transient(device, number)
    may_end.set()
    thread.join()
    peaks = {result.function_name: result.peak_memory_usage() for result in profiler.results}
    assert peaks.pop("long") == 800
    assert peaks == {f"short_{number}": number for number in range(20)}


def test_allocated_and_freed_equal_the_allocators_counts(torch: Any) -> None:
    device, profiler = torch.allocators[0], GPUMemoryProfiler()

    def work(keep: int) -> None:
        transient(device, 500)
        device.take(keep)

    result = profiler.profile_function(work, keep=20)
    assert (result.memory_allocated, result.memory_freed, result.memory_diff()) == (520, 500, 20)
    assert (result.function_name, result.memory_before.operation) == ("work", "before_work")
    assert result.memory_peak.operation == "peak_work" and result.execution_time >= 0
    assert result.to_dict()["peak_memory_usage"] == 500 and result.to_dict()["memory_diff"] == 20


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_exception_is_recorded_and_raised(torch: Any, kind: type[BaseException]) -> None:
    device, profiler = torch.allocators[0], GPUMemoryProfiler()

    def fail() -> None:
        device.take(60)
        raise kind("mine")

    with pytest.raises(kind, match="mine"):
        profiler.profile_function(fail)
    with pytest.raises(kind, match="mine"), profiler.profile_context("block"):
        fail()
    first, second = profiler.results
    assert (first.function_name, first.memory_after.operation) == ("fail", "after_fail_error")
    assert (first.peak_memory_usage(), first.memory_allocated) == (60, 60)
    assert (second.function_name, second.peak_memory_usage()) == ("block", 120)
    assert _meter._OPEN == [], "no stretch is left open"


def test_a_late_error_of_the_device_is_raised(torch: Any) -> None:
    profiler = GPUMemoryProfiler()

    def refuse(device: object = None) -> None:
        raise RuntimeError("device-side assert")

    with pytest.raises(RuntimeError, match="device-side assert"), profiler.profile_context("late"):
        torch.cuda.synchronize = refuse
    assert profiler.results[0].memory_after.operation == "after_late_error"
    torch.cuda.synchronize = lambda device=None: None
    with pytest.raises(KeyError, match="mine"), profiler.profile_context("both"):
        torch.cuda.synchronize = refuse
        raise KeyError("mine")
    assert _meter._OPEN == []


def test_nothing_is_kept_alive(torch: Any) -> None:
    class Big:
        pass

    profiler = GPUMemoryProfiler(collect_stack_traces=True)
    seen: list[weakref.ref[Big]] = []

    def fail() -> None:
        tensor = Big()
        seen.append(weakref.ref(tensor))
        raise RuntimeError("CUDA out of memory")

    with contextlib.suppress(RuntimeError):
        profiler.profile_function(fail)
    gc.collect()
    assert seen[0]() is None and profiler.results


def test_results_are_bounded_and_sums_are_not(torch: Any) -> None:
    device = torch.allocators[0]
    profiler = GPUMemoryProfiler(max_results=10)
    for number in range(25):
        with profiler.profile_context(f"step_{number}"):
            transient(device, 100)
        with profiler.profile_context("same"):
            transient(device, 1)
    assert len(profiler.results) == 10
    assert sum(len(found) for found in profiler.function_stats.values()) == 10
    assert set(profiler.function_stats) == {"same", *(f"step_{number}" for number in range(20, 25))}
    summary = profiler.get_summary()
    assert summary["total_function_calls"] == 50 and summary["results_dropped"] == 40
    assert summary["total_memory_allocated"] == 25 * 101 and summary["net_memory_change"] == 0
    assert summary["function_summaries"]["same"]["call_count"] == 25
    assert summary["peak_memory_usage"] == 100
    profiler.clear_results()
    assert profiler.get_summary() == {"message": "No profiling results available"}


def test_the_monitor_never_waits_for_the_device(torch: Any) -> None:
    profiler = GPUMemoryProfiler(max_snapshots=3)
    profiler.start_monitoring(None)
    profiler.start_monitoring(0.001)
    profiler.stop_monitoring()
    # The first at once; more where this thread was kept waiting.
    assert {snapshot.operation for snapshot in profiler.snapshots} == {"monitor"}
    with profiler:
        profiler.start_monitoring(0.001)
        while len(profiler.snapshots) < 3:
            pass
        assert profiler._monitoring
    assert not profiler._monitoring and len(profiler.snapshots) == 3
    assert torch.waits == []
    with profiler.profile_context():
        pass
    assert torch.waits == [0, 0]


def test_a_graph_that_is_captured_is_not_disturbed(torch: Any) -> None:
    torch.cuda.is_current_stream_capturing = lambda: True
    profiler = GPUMemoryProfiler()
    with profiler.profile_context("captured"):
        transient(torch.allocators[0], 9)
    assert torch.waits == [] and profiler.results[0].peak_memory_usage() == 9


def test_devices_that_are_none(torch: Any) -> None:
    with pytest.raises(ValueError, match="Device cuda:5 is not available: there are 2"):
        GPUMemoryProfiler(5)
    with pytest.raises(ValueError, match="Only CUDA/ROCm or MPS devices"):
        GPUMemoryProfiler("xpu:0")
    with pytest.raises(RuntimeError, match="backend 'mps' does not provide them"):
        GPUMemoryProfiler("mps")
    with pytest.raises(ValueError, match="max_snapshots must be >= 1"):
        GPUMemoryProfiler(max_snapshots=0)
    with pytest.raises(errors.ConfigurationError, match="max_results must be >= 1"):
        GPUMemoryProfiler(max_results=0)
    with pytest.raises(errors.ConfigurationError, match="interval must be > 0"):
        GPUMemoryProfiler().start_monitoring(0)
    assert GPUMemoryProfiler(torch.device("cuda")).device.index == 0


def test_tensors_are_counted(torch: Any) -> None:
    profiler = GPUMemoryProfiler(device=None, track_tensors=True, track_cpu_memory=True)
    kept: list[Any] = []
    with profiler.profile_context("make"):
        kept += [cuda_stand_in.Tensor(torch.allocators[0], 10) for _ in range(3)]
    assert (profiler.results[0].tensors_created, profiler.results[0].tensors_deleted) == (3, 0)
    count = TensorTracker().count_tensors()
    with profiler.profile_context("drop"):
        kept.clear()
    assert profiler.results[1].tensors_deleted == 3
    assert TensorTracker().count_tensors() == count - 3


def test_stacks_are_the_programs(torch: Any) -> None:
    profiler = GPUMemoryProfiler(collect_stack_traces=True, track_cpu_memory=False)
    with profiler.profile_context("block"):
        pass
    stack = profiler.results[0].memory_before.stack_trace
    assert (
        stack is not None and "test_stacks_are_the_programs" in stack and "stormlog/profiler.py" not in stack
    )
    assert profiler.results[0].memory_before.cpu_memory == 0


def test_without_a_gpu_the_peak_inside_a_call_is_true() -> None:
    assert "torch" not in sys.modules
    profiler = GPUMemoryProfiler(track_tensors=True)
    assert str(profiler.device) == "cpu"

    def transient_memory() -> None:
        block = mmap.mmap(-1, 64 * MB)
        block.write(b"x" * len(block))
        block.close()

    with profiler.profile_context("outer"):
        result = profiler.profile_function(transient_memory)
    with profiler.profile_context("nothing"):
        pass
    before = result.memory_before.allocated_memory
    assert result.peak_memory_usage() - before >= 60 * MB
    outer, nothing = profiler.results[1:]
    assert outer.peak_memory_usage() >= result.peak_memory_usage()
    assert nothing.peak_memory_usage() - nothing.memory_before.allocated_memory < 30 * MB
    assert result.memory_before.device_id == -1 and result.memory_before.cpu_memory > 0
    assert profiler.get_summary()["device"] == "cpu"
    assert result.tensors_created == 0


def test_without_torch_a_gpu_is_an_import_error() -> None:
    assert "torch" not in sys.modules
    for device in ("cuda", 0, "cuda:1"):
        with pytest.raises(ImportError, match=r"stormlog\[torch\]"):
            GPUMemoryProfiler(device)
    assert str(GPUMemoryProfiler("cpu").device) == "cpu"


def test_the_documented_shapes(torch: Any) -> None:
    device, profiler = torch.allocators[0], GPUMemoryProfiler()
    device.take(2 * MB)

    def train_step() -> None:
        transient(device, 4 * MB)
        device.take(MB)

    call = profiler.profile_function(train_step).to_function_call()
    assert (call["name"], call["memory_start_mb"], call["memory_end_mb"]) == ("train_step", 2.0, 3.0)
    assert call["memory_peak_mb"] == 6.0
    assert call["end_time"] - call["start_time"] == pytest.approx(call["duration"], abs=1e-6)
    snapshot = profiler.results[0].memory_after.to_memory_snapshot(total_memory=12 * MB)
    assert snapshot == {
        "timestamp": profiler.results[0].memory_after.timestamp,
        "memory_used_mb": 3.0,
        "memory_total_mb": 12.0,
        "memory_percent": 25.0,
        "gpu_id": 0,
    }
    assert profiler.results[0].memory_after.to_memory_snapshot()["memory_percent"] is None
    assert profiler.detect_leaks()["detected"] is False


def test_leaks_are_a_rising_floor() -> None:
    leaking = [(float(step), (step + (step % 7) * 40) * MB) for step in range(600)]
    found = stormlog.shapes.leak_detection_result(leaking)
    assert found["detected"] and found["severity"] == "medium"
    assert found["memory_increase_mb"] == pytest.approx(540, abs=10) and found["time_window_seconds"] == 599.0
    assert found["suggestions"]
    breathing = [(float(step), (step % 60) * 40 * MB) for step in range(600)]
    flat = stormlog.shapes.leak_detection_result(breathing)
    assert (flat["detected"], flat["severity"], flat["suggestions"]) == (False, "none", [])
    assert stormlog.shapes.leak_detection_result([])["detected"] is False


def test_errors_are_what_python_would_raise() -> None:
    assert issubclass(stormlog.ProfilerError, RuntimeError)
    assert issubclass(stormlog.ConfigurationError, (stormlog.ProfilerError, ValueError))
    assert issubclass(stormlog.ConfigurationError, ValueError)
    assert issubclass(stormlog.VisualizationError, ImportError)
    assert issubclass(stormlog.VisualizationError, stormlog.ProfilerError)
    assert errors.MemoryError is builtins.MemoryError
