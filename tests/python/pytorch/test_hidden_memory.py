"""Hidden memory by readings: what grew when, whose it is, and that the parts are the whole."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import auto_stand_in
import pytest
from stormlog import hidden_memory
from stormlog.hidden_memory import CONTEXT, GRAPHS, MODULES, NCCL, HiddenMemory, Reading

MB = 1 << 20


def reading(used: int, reserved: int, own: int | None = None) -> Reading:
    total = 1000
    return Reading(
        used * MB, (total - used) * MB, total * MB, None if own is None else own * MB, reserved * MB
    )


def megabytes(hidden: HiddenMemory) -> dict[str, int]:
    report = hidden.report()
    assert sum(report["parts"].values()) == report["hidden_bytes"], "the parts are the whole"
    return {name: size // MB for name, size in report["parts"].items()}


def test_growth_is_attributed_to_the_event_at_that_time() -> None:
    hidden = HiddenMemory(0, used_before=100 * MB)
    for step in (reading(400, 0), reading(620, 20)):
        hidden.observe(step, lambda: MODULES)
    assert megabytes(hidden) == {CONTEXT: 500}, "until the allocator holds something it is the context"
    hidden.observe(reading(700, 20), lambda: MODULES)
    hidden.observe(reading(900, 20), lambda: NCCL)
    hidden.observe(reading(960, 80), lambda: pytest.fail("only the allocator grew"))
    assert megabytes(hidden) == {CONTEXT: 500, NCCL: 200, MODULES: 80}
    assert hidden.report()["other_processes_bytes"] == 100 * MB


def test_the_drivers_number_for_the_process_is_better() -> None:
    hidden = HiddenMemory(0, used_before=0)
    hidden.observe(reading(900, 100, own=400), lambda: MODULES)
    report = hidden.report()
    assert (report["hidden_bytes"], report["other_processes_bytes"]) == (300 * MB, 500 * MB)


def test_unknown_stays_unknown() -> None:
    hidden = HiddenMemory(0)
    hidden.observe(reading(900, 100), lambda: MODULES)
    assert hidden.report()["hidden_bytes"] is None and hidden.report()["parts"] == {}


def test_a_mark_names_what_grew_since_the_last_one() -> None:
    hidden = HiddenMemory(0, used_before=0)
    hidden.observe(reading(300, 10), lambda: MODULES)
    for used, cause in ((350, MODULES), (360, NCCL)):
        hidden.observe(reading(used, 10), lambda cause=cause: cause)  # type: ignore[misc]
    hidden.mark("first_gemm")
    assert megabytes(hidden) == {CONTEXT: 290, "first_gemm": 60}
    hidden.observe(reading(400, 10), lambda: MODULES)
    hidden.mark("libraries")
    assert megabytes(hidden) == {CONTEXT: 290, "first_gemm": 60, "libraries": 40}


def test_freed_memory_is_taken_from_the_last_growth() -> None:
    hidden = HiddenMemory(0, used_before=0)
    for used, cause in ((300, MODULES), (350, MODULES), (450, NCCL)):
        hidden.observe(reading(used, 10), lambda cause=cause: cause)  # type: ignore[misc]
    hidden.observe(reading(330, 10), lambda: MODULES)
    assert megabytes(hidden) == {CONTEXT: 290, MODULES: 30}
    hidden.observe(reading(200, 10), lambda: MODULES)
    assert megabytes(hidden) == {CONTEXT: 190}
    assert hidden.report()["peak_hidden_bytes"] == 440 * MB


def test_noise_is_not_a_part() -> None:
    hidden = HiddenMemory(0, used_before=0)
    hidden.observe(reading(300, 10), lambda: MODULES)
    small = reading(300, 10)._replace(used=300 * MB + 4096)
    hidden.observe(small, lambda: pytest.fail("less than a step"))
    assert megabytes(hidden) == {CONTEXT: 290}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = auto_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    hidden_memory.forget()
    yield module
    hidden_memory.forget()


def test_a_device_without_a_context_is_not_asked(torch: Any) -> None:
    torch.cuda.mem_get_info = lambda device: pytest.fail("this would make a context")
    assert hidden_memory.measure(0) is None
    assert hidden_memory.report(0) == {"device_index": 0, "hidden_bytes": None, "parts": {}}


def test_communicators_and_graphs_are_found_out(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.stand_in.use()
    assert hidden_memory._found_out(torch, 0) == MODULES
    group = types.SimpleNamespace(
        _get_backend=lambda device: types.SimpleNamespace(_is_initialized=lambda: True)
    )
    world = types.SimpleNamespace(_world=types.SimpleNamespace(pg_map={1: ("gloo", None)}))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", world)
    assert hidden_memory._found_out(torch, 0) == MODULES
    world._world.pg_map = _Groups(group)
    assert hidden_memory._found_out(torch, 0) == NCCL
    assert hidden_memory._found_out(torch, 0) == MODULES, "it is no longer new"

    def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
        assert include_traces is False
        return [{"device": 0, "segment_pool_id": (0, 1)}, {"device": 1, "segment_pool_id": (0, 2)}]

    torch.cuda.memory_snapshot = memory_snapshot
    assert hidden_memory._found_out(torch, 0) == GRAPHS


class _Groups:
    """A map whose keys cannot be hashed, as groups need not be here."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def items(self) -> list[tuple[Any, tuple[str, None]]]:
        return [(self.group, ("cuda:nccl", None))]
