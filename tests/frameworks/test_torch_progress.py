"""Which step and phase a program is in when it runs out, with the real PyTorch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from stormlog._torch.auto_bundle import Failure
from stormlog._torch.auto_progress import STEPS, Steps, phase_of, stack_and_phase
from stormlog._torch.auto_verdict import verdict

torch: Any = pytest.importorskip("torch")


@pytest.fixture
def counted() -> Iterator[None]:
    STEPS.stop()
    STEPS.count()
    yield
    STEPS.stop()


def trained(steps: int) -> tuple[Any, Any]:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.usefixtures("counted")
def test_steps_are_those_of_the_busiest_optimizer() -> None:
    assert STEPS.current() is None, "nothing was trained"
    kept = [trained(3), trained(5)]
    assert STEPS.current() == 6
    kept = [trained(1)]
    gc.collect()
    assert STEPS.current() == 2 and kept, "an optimizer that is gone is not kept for its number"
    STEPS.stop()
    trained(2)
    assert STEPS.current() is None


def test_the_hook_is_counted_once() -> None:
    steps = Steps()
    steps.count()
    steps.count()
    kept = trained(2)
    assert steps.current() == 3 and kept
    steps.stop()


def test_the_phase_is_read_off_the_stack() -> None:
    seen: dict[str, str | None] = {}

    def look(name: str) -> None:
        stack, seen[name] = stack_and_phase()
        assert any("test_torch_progress.py" in line for line in stack), stack

    class Layer(torch.nn.Module):  # type: ignore[misc]
        def forward(self, value: Any) -> Any:
            look("forward")
            return value * 2

    class Stepped(torch.optim.SGD):  # type: ignore[misc]
        def _init_group(self, *args: Any, **kwargs: Any) -> Any:
            look("step")
            return super()._init_group(*args, **kwargs)

    class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            look("data")
            return index

    weight = torch.nn.Parameter(torch.ones(3))
    weight.register_hook(lambda gradient: look("backward"))
    optimizer = Stepped([weight], lr=0.1)
    list(torch.utils.data.DataLoader(Numbers()))
    Layer()(weight).sum().backward()
    optimizer.step()
    look("outside")
    assert seen == {
        "forward": "forward",
        "backward": "backward",
        "step": "optimizer step",
        "data": "data loading",
        "outside": None,
    }


def test_a_thread_of_the_engine_is_in_backward() -> None:
    """On a GPU a backward pass runs in a thread that Python did not make; here one stands for it."""
    found: list[Any] = []

    def engine() -> None:
        thread = threading.current_thread()
        threading._active[threading.get_ident()] = threading._DummyThread()  # type: ignore[attr-defined]
        try:
            found.append(stack_and_phase())
        finally:
            threading._active[threading.get_ident()] = thread  # type: ignore[attr-defined]

    def in_backward(gradient: Any) -> None:
        thread = threading.Thread(target=engine)
        thread.start()
        thread.join()

    weight = torch.nn.Parameter(torch.ones(3))
    weight.register_hook(in_backward)
    weight.sum().backward()
    (stack, phase) = found[0]
    assert phase == "backward"
    assert any("test_a_thread_of_the_engine_is_in_backward" in line for line in stack), "who called it"


@pytest.mark.usefixtures("counted")
def test_the_verdict_begins_with_it() -> None:
    kept = trained(1203)
    weight = torch.nn.Parameter(torch.ones(3))
    seen: list[Failure] = []
    weight.register_hook(lambda _: seen.append(Failure.of_allocator(0, 1 << 30, 1 << 32, 1 << 20, True)))
    weight.sum().backward()
    failure = seen[0]
    assert (failure.step, failure.phase) == (1204, "backward") and kept
    empty: dict[str, Any] = {"segments": [], "device_traces": [[]]}
    sentence = verdict(failure, empty, {}, {}).sentence
    assert sentence.startswith(
        "CUDA out of memory at step 1 204 in backward on GPU 0: out of memory: requested 1.00 GiB;"
    )


def test_a_stack_without_signs_has_no_phase() -> None:
    assert phase_of(["/x/torch/optim/optimizer.py:9 zero_grad", "/x/train.py:3 main"]) is None
    assert phase_of([]) is None
