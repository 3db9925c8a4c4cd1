"""The same calls of the GPU profiler on whichever stormlog this interpreter has, over the same stand-in.

`python peer_profiler.py FOLDER`: run by test_profiler_compat.py under 0.4.3 and under ours; prints as JSON.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import cuda_stand_in

torch = cuda_stand_in.make()
sys.modules["torch"] = torch

from stormlog import context_profiler, cuda_native_debug  # noqa: E402 (PyTorch has to be there first)
from stormlog.profiler import GPUMemoryProfiler, MemorySnapshot, ProfileResult  # noqa: E402

TIMES = {"timestamp", "execution_time", "total_execution_time", "total_time", "avg_time"}


def timeless(value: Any) -> Any:
    """The same without times, and without the memory of this process, which differ by nature."""
    if isinstance(value, dict):
        return {
            key: 0 if key in TIMES or key in {"cpu_memory", "average_batch_time"} else timeless(inner)
            for key, inner in value.items()
        }
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def parameters(function: Any) -> list[list[str]]:
    return [
        [name, repr(parameter.default) if parameter.default is not parameter.empty else "-"]
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def increment(number: int) -> int:
    return number + 1


def main(folder: Path) -> dict[str, Any]:
    device = torch.allocators[0]
    profiler = GPUMemoryProfiler()
    empty = profiler.get_summary()

    def work(size: int) -> None:
        device.take(size)
        device.take(100)
        device.give(100)

    results = [profiler.profile_function(work, size).to_dict() for size in (10, 20)]
    with profiler.profile_context("block"):
        device.give(5)
    context_profiler.set_global_profiler(profiler)
    decorated: Any = context_profiler.profile_function(name="mine")(increment)
    answer = decorated(1)
    with context_profiler.profile_context("with") as given:
        pass
    high = context_profiler.MemoryProfiler()
    high.profile(work, 7)
    high.save_results(str(folder / "results.json"))
    index = {"device_index": 0, "storage_pointer_count": 1, "attributed_storage_pointers": [
        {"storage_ptr_int": 0x7000_0000, "names": ["layer.weight"], "tensors": [{"shape": [1]}]}
    ]}  # fmt: skip
    files = cuda_native_debug.write_cuda_snapshot_artifacts(
        folder / "native", torch.history._snapshot(), index, history_recorded=True
    )
    written = {
        name: json.loads((folder / "native" / name).read_text()) for name in files if name.endswith(".json")
    }
    for name in ("warnings", "warning_count"):
        written["cuda_native_debug_metadata.json"].pop(name)
    return {
        "empty": empty,
        "results": timeless(results),
        "summary": timeless(profiler.get_summary()),
        "names": list(profiler.function_stats),
        "decorated": [answer, decorated._is_profiled, decorated._profile_name, given is profiler],
        "limited": [result.function_name for result in context_profiler.get_profile_results(2)],
        "saved": timeless(json.loads((folder / "results.json").read_text())),
        "loaded": sorted(high.load_results(str(folder / "results.json"))),
        "native": [sorted(set(files)), written],
        "attributed": cuda_native_debug.build_snapshot_allocation_attribution(
            torch.history._snapshot()["segments"], index
        ),
        "signatures": {
            name: parameters(function)
            for name, function in {
                "MemorySnapshot": MemorySnapshot,
                "ProfileResult": ProfileResult,
                "GPUMemoryProfiler": GPUMemoryProfiler,
                "profile_context": context_profiler.profile_context,
                "profile_function": context_profiler.profile_function,
                "start_monitoring": GPUMemoryProfiler.start_monitoring,
                "start_history": cuda_native_debug.start_cuda_memory_history,
                "capture": cuda_native_debug.capture_cuda_snapshot_artifacts,
                "training": context_profiler.profile_model_training,
            }.items()
        },
        "public": sorted(cuda_native_debug.__all__),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
