"""Profilers, history and the emergency ladder on a real CUDA device, against counters computed by hand.

Sizes are whole multiples of 2 MiB: the caching allocator rounds nothing, and expected numbers are exact.
Needs no pytest: `python tests/gpu/plain.py tests/gpu/test_profiler_gpu.py`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import stormlog
from stormlog import cuda_native_debug
from stormlog._torch import meter as _meter
from stormlog.device_collectors import CudaDeviceCollector
from stormlog.profiler import GPUMemoryProfiler, TensorTracker
from stormlog.tracker import MemoryTracker, MemoryWatchdog

# Without PyTorch the tests are skipped.
torch: Any = import_module("torch") if find_spec("torch") else None

MB = 1 << 20


def block(megabytes: int) -> Any:
    return torch.empty(megabytes * MB, dtype=torch.uint8, device="cuda")


def transient(megabytes: int) -> None:
    block(megabytes)


def clean() -> int:
    """Nothing of earlier tests; what is allocated all the same."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_allocated())


@contextlib.contextmanager
def room_for(megabytes: int) -> Iterator[None]:
    """Makes more than the given megabytes beyond what is reserved now an OutOfMemoryError."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + megabytes * MB) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def error_of(kind: type[BaseException], call: Callable[[], object]) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} did not come")


def peaks(profiler: GPUMemoryProfiler, base: int) -> dict[str, float]:
    """Megabytes above the base, by name."""
    return {result.function_name: (result.peak_memory_usage() - base) / MB for result in profiler.results}


def test_nested_blocks_keep_the_outer_peak() -> None:
    base = clean()
    profiler = GPUMemoryProfiler()
    with profiler.profile_context("outer"):
        transient(64)
        with profiler.profile_context("first"):
            transient(8)
        with profiler.profile_context("second"):
            kept = block(16)
            with profiler.profile_context("innermost"):
                transient(32)
        transient(4)
    assert peaks(profiler, base) == {"outer": 64, "first": 8, "second": 48, "innermost": 48}
    outer = profiler.results[-1]
    assert outer.memory_diff() == 16 * MB
    assert (outer.memory_allocated, outer.memory_freed) == (124 * MB, 108 * MB)
    del kept


def test_an_inner_peak_is_the_outers_too_and_an_earlier_one_is_not() -> None:
    base = clean()
    transient(256)
    profiler = GPUMemoryProfiler()
    with profiler.profile_context("outer"):
        with profiler.profile_context("inner"):
            transient(128)
        transient(2)
    with profiler.profile_context("after"):
        transient(6)
    assert peaks(profiler, base) == {"outer": 128, "inner": 128, "after": 6}


def test_the_peak_is_pytorchs_own() -> None:
    clean()
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(6))).cuda()
    inputs = torch.randn(4096, 1024, device="cuda")

    def step() -> None:
        model(inputs).sum().backward()
        model.zero_grad(set_to_none=True)

    step()  # workspaces are there afterwards
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    by_hand = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    result = GPUMemoryProfiler().profile_function(step)
    assert (result.peak_memory_usage(), result.memory_peak.reserved_memory) == by_hand
    assert result.memory_diff() == 0 and result.execution_time > 0


def test_a_profiled_module_says_what_its_forward_pass_took() -> None:
    clean()
    profiler = GPUMemoryProfiler()
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    module = stormlog.ProfiledModule(layer, name="layer", profiler=profiler)
    inputs = torch.randn(4096, 1024, device="cuda")
    with torch.no_grad():
        module(inputs)
        output = module(inputs)
    assert torch.equal(output, layer(inputs))
    second = profiler.results[1]
    assert second.function_name == "layer_forward"
    assert second.memory_diff() == 4096 * 1024 * 4, "the output stays"
    assert second.peak_memory_usage() - second.memory_before.allocated_memory >= 4096 * 1024 * 4


def test_out_of_memory_is_recorded_raised_and_released() -> None:
    base = clean()
    profiler = GPUMemoryProfiler()

    def too_much() -> None:
        held = block(64)
        block(4096)
        del held

    with room_for(256):
        text = error_of(torch.OutOfMemoryError, lambda: profiler.profile_function(too_much))
    assert "Tried to allocate 4.00 GiB" in text
    result = profiler.results[0]
    assert result.memory_after.operation == "after_too_much_error"
    assert (result.peak_memory_usage() - base) // MB == 64
    assert torch.cuda.memory_allocated() == base, "nothing of ours holds the frames"
    assert _meter._OPEN == []


def test_threads_keep_their_own_peaks() -> None:
    base = clean()
    profiler = GPUMemoryProfiler()
    inside, may_end = threading.Event(), threading.Event()

    def long() -> None:
        with profiler.profile_context("long"):
            transient(512)
            inside.set()
            may_end.wait(30)

    thread = threading.Thread(target=long)
    thread.start()
    assert inside.wait(30)
    for number in range(1, 9):
        with profiler.profile_context(f"short_{number}"):
            transient(2 * number)
    may_end.set()
    thread.join()
    expected = {f"short_{number}": 2 * number for number in range(1, 9)}
    assert peaks(profiler, base) == {**expected, "long": 512}


def test_work_on_another_stream_is_waited_for_and_counted() -> None:
    base = clean()
    profiler, stream, done = GPUMemoryProfiler(), torch.cuda.Stream(), torch.cuda.Event()
    with profiler.profile_context("streams"), torch.cuda.stream(stream):
        data = block(128)
        for _ in range(50):
            data.add_(1)
        done.record()
    assert done.query(), "the block ends when the device is done"
    assert peaks(profiler, base) == {"streams": 128}
    del data


def test_a_graph_can_be_captured_inside_a_profiled_block() -> None:
    clean()
    profiler, graph = GPUMemoryProfiler(), torch.cuda.CUDAGraph()
    static = block(16)
    with torch.cuda.graph(graph), profiler.profile_context("captured"):
        result = static + 1
    graph.replay()
    torch.cuda.synchronize()
    assert profiler.results[0].memory_diff() == 16 * MB
    assert int(result[0]) == (int(static[0]) + 1) % 256
    graph.reset()


def test_transients_are_in_what_was_allocated() -> None:
    clean()

    def seven_times() -> None:
        for _ in range(7):
            transient(10)

    result = GPUMemoryProfiler().profile_function(seven_times)
    assert (result.memory_allocated, result.memory_freed, result.memory_diff()) == (70 * MB, 70 * MB, 0)


def test_results_are_bounded() -> None:
    clean()
    profiler = GPUMemoryProfiler(max_results=50)
    for number in range(200):
        with profiler.profile_context(f"step_{number}"):
            transient(2)
    summary = profiler.get_summary()
    assert len(profiler.results) == len(profiler.function_stats) == 50
    assert summary["total_function_calls"] == 200 and summary["total_memory_allocated"] == 400 * MB


def test_tensors_are_counted() -> None:
    clean()
    profiler = GPUMemoryProfiler(track_tensors=True)
    kept: list[Any] = []
    with profiler.profile_context("make"):
        kept += [block(2) for _ in range(4)]
        kept.append(torch.zeros(1))
    assert profiler.results[0].tensors_created == 4, "those on the host are not the device's"
    assert TensorTracker().count_tensors() >= 4


def test_a_tensor_that_stays_has_the_stack_of_its_block() -> None:
    clean()
    with cuda_native_debug.cuda_memory_history():
        kept = block(26)
        tracker = TensorTracker()
        tracker.step()
        tracker.step()
        (held,) = [one for one in tracker.persistent() if one.size_bytes == 26 * MB]
    assert held.stack is not None and " block" in held.stack.splitlines()[0], held
    assert kept.numel() == 26 * MB and held.age == 2


def test_the_monitor_reads_while_the_device_is_busy() -> None:
    clean()
    profiler = GPUMemoryProfiler()
    data = torch.randn(4096, 4096, device="cuda")
    done = torch.cuda.Event()
    for _ in range(400):
        data = data @ data
        data = data / data.norm()
    done.record()
    profiler.start_monitoring(0.001)
    while not profiler.snapshots:
        time.sleep(0.001)
    was_busy = not done.query()
    profiler.stop_monitoring()
    torch.cuda.synchronize()
    assert was_busy, "a snapshot came before the device was done"
    assert profiler.snapshots[0].allocated_memory >= 4096 * 4096 * 4


def test_a_sample_is_the_allocators_and_the_drivers() -> None:
    base = clean()
    kept, cached = block(64), block(32)
    del cached
    sample = CudaDeviceCollector(0).sample()
    assert sample.allocated_bytes == base + 64 * MB == torch.cuda.memory_allocated()
    assert sample.reserved_bytes == torch.cuda.memory_reserved()
    stats = torch.cuda.memory_stats()
    assert sample.active_bytes == stats["active_bytes.all.current"]
    assert sample.inactive_bytes == stats["inactive_split_bytes.all.current"]
    free, total = torch.cuda.mem_get_info()
    assert sample.total_bytes == total and abs((sample.free_bytes or 0) - free) < 256 * MB
    assert (sample.used_bytes or 0) > (sample.reserved_bytes or 0), "the context is the driver's"
    del kept


def test_cost_of_a_sample_is_printed() -> None:
    """Measures, and asserts nothing about time."""
    collector = CudaDeviceCollector(0)

    def microseconds(call: Callable[[], object], count: int = 500) -> float:
        started = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - started) / count * 1e6

    costs = {
        "whole sample": microseconds(collector.sample),
        "allocator, one call": microseconds(lambda: torch._C._cuda_memoryStats(0)),
        "allocator, public functions": microseconds(
            lambda: (torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.memory_stats())
        ),
        "driver": microseconds(torch.cuda.mem_get_info),
    }
    figures = ", ".join(f"{name} {cost:.1f} us" for name, cost in costs.items())
    sys.stdout.write(f"cost of a sample: {figures}\n")
    assert len(costs) == 4


def test_an_oom_bundle_holds_the_allocators_history(tmp_path: Path) -> None:
    clean()
    model = torch.nn.Linear(1024, 1024, device="cuda")
    tracker = MemoryTracker(
        0,
        sampling_interval=0.05,
        enable_oom_flight_recorder=True,
        oom_dump_dir=str(tmp_path),
        enable_native_cuda_history=True,
        native_history_max_entries=1000,
    )

    def train() -> None:
        with tracker.capture_oom("train.forward", {"batch_size": 64}):
            held_by_the_step = block(64)
            block(4096)
            del held_by_the_step

    with tracker:
        assert cuda_native_debug.cuda_memory_history_is_on()
        with room_for(256):
            error_of(torch.OutOfMemoryError, train)
    assert cuda_native_debug.cuda_memory_history_is_on() is False
    assert tracker.last_oom_dump_path is not None
    bundle = Path(tracker.last_oom_dump_path)
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["native_history_enabled"] is True and manifest["backend"] == "cuda"
    assert set(manifest["files"]) == {file.name for file in bundle.iterdir()}
    facts = json.loads((bundle / "cuda_native_debug_metadata.json").read_text())
    assert facts["trace_html_written"], facts["warnings"]
    with (bundle / "cuda_allocator_snapshot.pickle").open("rb") as file:
        snapshot = pickle.load(file)
    trace = snapshot["device_traces"][0]
    categories = json.loads((bundle / "cuda_memory_categories.json").read_text())
    assert categories["categories"]["parameters"]["bytes"] >= 1024 * 1024 * 4
    known = [row["frames"] for row in categories["top_stacks"] if row["frames"]]
    assert any("train" in frame for frame in known[0]), "what was there before has no stack"
    assert categories["allocator_settings"] is not None
    assert {"alloc", "oom"} <= {entry["action"] for entry in trace}
    frames = [frame["name"] for entry in trace if entry.get("size") == 64 * MB for frame in entry["frames"]]
    assert "train" in frames, "the stack of who allocated it"
    found = json.loads((bundle / "cuda_allocation_attribution.json").read_text())["attributed_allocations"]
    by_name = {name: one["size_bytes"] for one in found for name in one["names"]}
    assert by_name["weight"] == 1024 * 1024 * 4
    assert 64 * MB in [one["size_bytes"] for one in found], "the tensor that was held when it happened"
    metadata = json.loads((bundle / "metadata.json").read_text())
    assert metadata["custom_metadata"]["sample_allocated_bytes"] >= 64 * MB
    assert model.weight.is_cuda


def test_every_allocated_byte_has_a_category() -> None:
    base = clean()
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(4))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(512, 1024, device="cuda")
    model(inputs).sum().backward()
    optimizer.step()
    output = model(inputs)
    index = cuda_native_debug.build_cuda_tensor_attribution_index(0)
    found = cuda_native_debug.memory_categories(torch.cuda.memory._snapshot(), index)
    sizes = {name: one["bytes"] for name, one in found["categories"].items()}
    sys.stdout.write(f"categories: {sizes}\n")
    assert sizes["parameters"] == sizes["gradients"] == 16 * MB
    assert sizes["optimizer_state"] == 32 * MB
    assert sizes["activations"] == 8 * MB, "every layer's output: only the backward pass holds them"
    assert sizes["data"] >= 2 * MB
    assert found["allocated_bytes"] == torch.cuda.memory_allocated() >= base
    assert found["reserved_bytes"] == torch.cuda.memory_reserved()
    assert output.requires_grad


def test_users_own_recording_continues(tmp_path: Path) -> None:
    clean()
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=50)
    try:
        tracker = MemoryTracker(
            0,
            sampling_interval=10,
            enable_oom_flight_recorder=True,
            oom_dump_dir=str(tmp_path),
            enable_native_cuda_history=True,
        )
        with tracker:
            pass
        with cuda_native_debug.cuda_memory_history():
            transient(2)
        assert cuda_native_debug.cuda_memory_history_is_on()
        assert torch.cuda.memory._snapshot()["device_traces"][0], "theirs is still there"
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def test_each_rung_wins_what_it_says() -> None:
    clean()
    a = torch.randn(256, 256, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a @ a  # a cuBLAS workspace of its own
    graph = torch.cuda.CUDAGraph()
    static = torch.zeros(64 * MB, dtype=torch.uint8, device="cuda")
    with torch.cuda.graph(graph):
        result = static + 1
    del result
    watchdog = MemoryWatchdog(MemoryTracker(0, sampling_interval=10), auto_cleanup=False)
    cache = [block(128)]
    watchdog.add_cleanup_callback(cache.clear)
    watchdog.add_graph(graph)
    rungs = {rung.name: rung for rung in watchdog.force_cleanup(aggressive=True)}
    sys.stdout.write(f"rungs: {[tuple(rung) for rung in rungs.values()]}\n")
    assert [rung.error for rung in rungs.values() if rung.error] == []
    assert rungs["callback_clear"].allocator_bytes_won == 128 * MB
    assert (rungs["empty_cache"].bytes_won or 0) >= 128 * MB
    assert (rungs["clear_cublas_workspaces"].allocator_bytes_won or 0) > 0
    assert (rungs["release_graph_pools"].bytes_won or 0) >= 64 * MB
    assert list(rungs)[-1] == "malloc_trim"


def test_a_step_that_ran_out_gets_its_memory_back() -> None:
    base = clean()
    watchdog = MemoryWatchdog(MemoryTracker(0, sampling_interval=10), auto_cleanup=False)

    def step(megabytes: int) -> None:
        held = block(128)
        block(megabytes)
        del held

    with room_for(512):
        try:
            step(4096)
        except torch.OutOfMemoryError as error:
            assert torch.cuda.memory_allocated() == base + 128 * MB, "the traceback holds it"
            rungs = {rung.name: rung for rung in watchdog.force_cleanup(exception=error)}
        assert rungs["drop_exception_frames"].allocator_bytes_won == 128 * MB
        assert torch.cuda.memory_allocated() == base
        step(64)


def test_utilities_agree_with_pytorch() -> None:
    base = clean()
    kept = block(64)
    info = stormlog.get_gpu_info(0)
    assert info["allocated_memory"] == base + 64 * MB and info["device_name"] == torch.cuda.get_device_name(0)
    state = stormlog.check_memory_fragmentation("cuda:0")
    assert state["allocated_memory"] == base + 64 * MB
    assert state["reserved_memory"] == torch.cuda.memory_reserved()
    assert torch.cuda.get_device_name(0) in stormlog.memory_summary()
    assert stormlog.suggest_memory_optimization(state)
    assert stormlog.get_system_info()["detected_backend"] == "cuda"
    del kept
