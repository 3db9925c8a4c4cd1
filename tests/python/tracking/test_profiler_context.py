"""The decorator, the block, the shared profiler and their files, on this process and on a stand-in."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda_stand_in
import pytest
import stormlog
from stormlog import context_profiler
from stormlog.context_profiler import MemoryProfiler, profile_context, profile_function
from stormlog.profiler import GPUMemoryProfiler


@pytest.fixture(autouse=True)
def nothing_shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(context_profiler, "_global_profiler", None)
    monkeypatch.setattr(context_profiler, "_of_devices", {})
    yield
    context_profiler.stop_monitoring()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = cuda_stand_in.make(devices=2)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_a_decorated_function_is_the_same_function() -> None:
    @profile_function
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    @profile_function(name="renamed")
    def fail() -> None:
        raise KeyError("mine")

    assert add(1) == 3 and add(1, b=5) == 6
    with pytest.raises(KeyError, match="mine"):
        fail()
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    wrapper: Any = add
    assert wrapper._is_profiled is True and wrapper._profile_name == "add"
    names = [result.function_name for result in context_profiler.get_profile_results()]
    assert names == ["add", "add", "renamed"]
    assert [result.function_name for result in context_profiler.get_profile_results(limit=1)] == ["renamed"]
    assert context_profiler.get_summary()["function_summaries"]["add"]["call_count"] == 2
    context_profiler.clear_results()
    assert context_profiler.get_profile_results() == []


def test_a_function_that_returns_none_is_called_once() -> None:
    calls: list[int] = []
    profile_function(lambda: calls.append(1), profiler=GPUMemoryProfiler("cpu"))()
    assert calls == [1]


def test_an_async_function_is_profiled_until_it_is_done() -> None:
    @profile_function
    async def wait() -> int:
        await asyncio.sleep(0.02)
        return 7

    assert asyncio.run(wait()) == 7
    assert context_profiler.get_profile_results()[0].execution_time >= 0.02


def test_a_block_gives_its_profiler() -> None:
    own = GPUMemoryProfiler("cpu")
    with profile_context("a", profiler=own) as given:
        assert given is own
    with profile_context("b") as shared:
        assert shared is context_profiler.get_global_profiler()
    assert [result.function_name for result in own.results] == ["a"]
    context_profiler.set_global_profiler(own)
    assert context_profiler.get_global_profiler() is own


def test_nothing_is_made_before_it_is_needed() -> None:
    profile_function(len)
    assert context_profiler._global_profiler is None
    assert context_profiler.get_summary() == {"message": "No global profiler instance"}
    assert context_profiler.get_profile_results() == []
    context_profiler.clear_results()


def test_another_device_has_its_own_shared_profiler(torch: Any) -> None:
    first = context_profiler.get_global_profiler()
    second = context_profiler.get_global_profiler("cuda:1")
    assert second is not first and second is context_profiler.get_global_profiler(1)
    assert context_profiler.get_global_profiler(0) is first is context_profiler.get_global_profiler("cuda")
    with profile_context("here"), profile_context("there", device=1):
        torch.allocators[1].take(30)
    found = {
        result.function_name: result.peak_memory_usage() for result in context_profiler.get_profile_results()
    }
    assert found == {"here": 0, "there": 30}


def test_results_go_to_a_file_and_back(tmp_path: Path) -> None:
    with MemoryProfiler("cpu") as profiler:
        profiler.start_monitoring(0.001)
        with profiler.context("block"):
            pass
        assert profiler.profile(len, []).function_name == "len"
    profiler.save_results(tmp_path / "results.json")
    loaded = profiler.load_results(str(tmp_path / "results.json"))
    assert loaded == json.loads((tmp_path / "results.json").read_text())
    assert [result["function_name"] for result in loaded["results"]] == ["block", "len"]
    assert loaded["summary"]["total_function_calls"] == 2 and loaded["snapshots"]
    profiler.clear()
    assert profiler.get_summary() == {"message": "No profiling results available"}


def test_the_shared_monitor() -> None:
    context_profiler.start_monitoring(None, "cpu")
    context_profiler.stop_monitoring()
    assert len(context_profiler.get_global_profiler().snapshots) == 1


def test_modules_need_torch() -> None:
    assert "torch" not in sys.modules
    with pytest.raises(ImportError, match=r"stormlog\[torch\]"):
        stormlog.ProfiledModule(object())
    with pytest.raises(ImportError, match=r"stormlog\[torch\]"):
        MemoryProfiler("cpu").wrap_module(object())


class CountingModel:
    """What `profile_model_training` asks of a model."""

    def __init__(self) -> None:
        self.is_training, self.seen = False, 0

    def train(self) -> None:
        self.is_training = True


def test_training_is_profiled_with_ones_own_step() -> None:
    model, batches = CountingModel(), [1, 2, 3]

    def step(model: CountingModel, batch: int) -> None:
        model.seen += batch

    report = stormlog.profile_model_training(model, batches, 2, "cpu", step=step, max_batches=2)
    assert model.is_training and model.seen == 6
    assert report["total_epochs"] == 2
    assert [one["function_name"] for one in report["batch_results"]] == [
        "batch_0_0",
        "batch_0_1",
        "batch_1_0",
        "batch_1_1",
    ]
    assert [one["batches_profiled"] for one in report["epoch_summaries"]] == [2, 2]
    assert {"epoch", "total_memory_allocated", "average_batch_time"} < set(report["epoch_summaries"][0])
    assert report["overall_summary"]["total_function_calls"] == 7
