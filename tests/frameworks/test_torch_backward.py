"""Every way into PyTorch's autograd engine publishes its caller's stack once; nothing else about it changes.

The two functions of the recording library are a stand-in that counts (`backward_stand_in.c`).
"""

from __future__ import annotations

import copy
import ctypes
import io
import os
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stormlog._torch.backward import _stormlog_install_backward as install

torch: Any = pytest.importorskip("torch")
HERE = Path(__file__).parent
OWN_PROCESS = "STORMLOG_TEST_OWN_PROCESS"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.PyDLL:
    path = tmp_path_factory.mktemp("stand_in") / "backward.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, HERE / "backward_stand_in.c"], check=True)
    return ctypes.PyDLL(str(path))


@pytest.fixture
def passes(library: ctypes.PyDLL, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Calls something and gives the number of backward passes it published; each of them was left again."""
    engine = torch.autograd.Variable._execution_engine
    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", engine)
    install(library.stormlog_gpu_enter_backward, library.stormlog_gpu_leave_backward)

    def count(work: Callable[[], object]) -> int:
        before = library.stand_in_entered()
        work()
        assert library.stand_in_inside() == 0
        assert library.stand_in_left() == library.stand_in_entered()
        return int(library.stand_in_entered()) - before

    return count


def loss(size: int = 8) -> Any:
    return torch.nn.Linear(size, size)(torch.randn(3, size, requires_grad=True)).square().mean()


def test_each_way_into_the_engine_is_published_once(passes: Callable[[Callable[[], object]], int]) -> None:
    from torch.utils.checkpoint import checkpoint

    data = torch.randn(4, requires_grad=True)
    layer = torch.nn.Linear(4, 4)

    def twice() -> None:
        (first,) = torch.autograd.grad(data.pow(3).sum(), data, create_graph=True)
        first.sum().backward()

    def checkpointed(use_reentrant: bool) -> None:
        checkpoint(layer, data, use_reentrant=use_reentrant).sum().backward()

    assert passes(lambda: loss().backward()) == 1
    assert passes(lambda: torch.autograd.backward([loss(), loss()])) == 1
    assert passes(lambda: torch.autograd.grad(data.sum(), data)) == 1
    assert passes(twice) == 2
    # The pass of a reentrant checkpoint is inside the program's own.
    assert passes(lambda: checkpointed(True)) == 1
    assert passes(lambda: checkpointed(False)) == 1
    assert passes(lambda: torch.autograd.functional.hessian(lambda x: x.pow(3).sum(), data)) >= 2
    assert passes(lambda: torch.func.grad(lambda x: x.pow(2).sum())(data.detach())) == 1
    run = torch.autograd.Variable._execution_engine.run_backward
    del run  # looked at and not called
    assert passes(lambda: None) == 0


def test_a_pass_begun_by_a_function_of_another_pass_is_not_published(
    passes: Callable[[Callable[[], object]], int],
) -> None:
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            with torch.enable_grad():
                loss().backward()
            return gradient

    data = torch.randn(4, requires_grad=True)
    assert passes(lambda: Inner.apply(data).sum().backward()) == 1


def test_an_exception_passes_through_without_a_frame_of_ours(
    passes: Callable[[Callable[[], object]], int],
) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            raise KeyError("from the program")

    def work() -> None:
        with pytest.raises(KeyError, match="from the program") as caught:
            Fails.apply(torch.randn(4, requires_grad=True)).sum().backward()
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert not [frame for frame in frames if "stormlog" in frame.filename.rpartition("/")[2]]
        assert not [
            frame for frame in frames if "_stormlog" in frame.name or "_torch/backward" in frame.filename
        ]
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(3).sum().backward()

    assert passes(work) == 2


def test_two_threads_are_two_callers(
    passes: Callable[[Callable[[], object]], int], library: ctypes.PyDLL
) -> None:
    both = threading.Barrier(2)

    class Meet(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            both.wait(60)
            return gradient

    def work() -> None:
        calls = [lambda: Meet.apply(torch.randn(4, requires_grad=True)).sum().backward()] * 2
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert passes(work) == 2
    assert library.stand_in_most() == 2


@pytest.mark.filterwarnings("default")
def test_torch_compile_traces_as_before(
    passes: Callable[[Callable[[], object]], int], request: pytest.FixtureRequest
) -> None:
    if OWN_PROCESS not in os.environ:
        # The compiler keeps tensors until its process ends, and tests of other files count them.
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", request.node.nodeid]
        root, env = request.config.rootpath, {**os.environ, OWN_PROCESS: "1"}
        done = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
        return
    layer = torch.nn.Linear(4, 4)

    @torch.compile(backend="eager")
    def forward(data: Any) -> Any:
        return layer(data).relu().sum()

    @torch.compile(backend="eager")
    def step(data: Any) -> Any:
        value = layer(data).relu().sum()
        value.backward()
        return value * 2

    @torch.compile(backend="aot_eager", fullgraph=True)
    def whole(data: Any) -> Any:
        return layer(data).relu().sum()

    data = torch.randn(2, 4)
    assert passes(lambda: forward(data).backward()) == 1
    whole(data)  # a compiler traces the backward pass by making one
    assert passes(lambda: whole(data).backward()) == 1
    assert passes(lambda: step(data)) <= 1
    assert layer.weight.grad is not None
    engine = torch.autograd.Variable._execution_engine
    assert isinstance(engine, torch._C._ImperativeEngine)
    torch._dynamo.reset()


def test_callbacks_copies_and_pickles_are_as_before(passes: Callable[[Callable[[], object]], int]) -> None:
    called = []
    data = torch.randn(4, requires_grad=True)

    def hook(gradient: Any) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: called.append(1))

    def work() -> None:
        value = data * 2
        value.register_hook(hook)
        value.sum().backward()
        network = torch.nn.Linear(3, 3)
        network(torch.randn(1, 3)).sum().backward()
        file = io.BytesIO()
        torch.save(copy.deepcopy(network), file)

    assert passes(work) == 2
    assert called == [1]
    assert torch.autograd._is_checkpoint_valid()


def test_nothing_is_installed_without_a_recording_library() -> None:
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import torch
        before = set(sys.modules)
        from stormlog._torch.backward import _stormlog_install_backward
        added = {name for name in set(sys.modules) - before if not name.startswith("stormlog")}
        engine = torch.autograd.Variable._execution_engine
        _stormlog_install_backward()
        assert torch.autograd.Variable._execution_engine is engine
        _stormlog_install_backward(lambda: 0, lambda token: 1 / 0)
        torch.ones(1, requires_grad=True).sum().backward()
        assert type(torch.autograd.Variable._execution_engine).__name__ == "Engine"
        before = set(sys.modules)
        _stormlog_install_backward(lambda: 1 / 0, None)
        torch.ones(1, requires_grad=True).sum().backward()
        assert set(sys.modules) == before
        print("whole")
    """
    words = [sys.executable, "-c", textwrap.dedent(code), str(HERE.parents[1] / "python")]
    assert subprocess.check_output(words, text=True).strip() == "whole"
