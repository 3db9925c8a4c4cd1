"""`ModuleMemory` with the real PyTorch; what it reads is counted here, from every tensor there is."""

from __future__ import annotations

from typing import Any

import pytest
from stormlog._torch.meter import Counters, Peak
from stormlog.module_memory import ModuleMemory

torch: Any = pytest.importorskip("torch")
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

BATCH, WIDTH = 64, 256
ACTIVATION = BATCH * WIDTH * 4
WEIGHT = WIDTH * WIDTH * 4


class Counted(TorchDispatchMode):  # type: ignore[misc]
    """Every storage an operation makes, for as long as it lives: a meter of the CPU."""

    device_id = -1

    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self.storages: dict[int, tuple[Any, int]] = {}
        self.open: list[Stretch] = []

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = call(*args, **(kwargs or {}))
        for one in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(one, torch.Tensor):
                self.add(one)
        now = self.allocated()
        for stretch in self.open:
            stretch.peak = max(stretch.peak, now)
        return result

    def add(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        self.storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

    def allocated(self) -> int:
        self.storages = {key: one for key, one in self.storages.items() if not one[0].expired()}
        return sum(size for _, size in self.storages.values())

    def read(self) -> Counters:
        now = self.allocated()
        return Counters(now, now, now, 0, now, now, now, None, None)

    def synchronize(self) -> None:
        raise AssertionError("nothing waits for the device")

    def begin(self) -> Stretch:
        self.open.append(Stretch(self))
        return self.open[-1]

    def reset_peak(self) -> None:
        pass


class Stretch:
    def __init__(self, meter: Counted) -> None:
        self.meter, self.peak = meter, meter.allocated()

    def end(self) -> Peak:
        self.meter.open.remove(self)
        peak = max(self.peak, self.meter.allocated())
        return Peak(peak, peak, peak)


def made() -> tuple[Any, Any, Counted]:
    meter = Counted()
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for parameter in model.parameters():
        meter.add(parameter)
    return model, optimizer, meter


def train(model: Any, optimizer: Any, inputs: Any) -> None:
    optimizer.zero_grad(set_to_none=True)
    model(inputs).sum().backward()
    optimizer.step()


def test_categories_at_the_peak_of_each_phase_sum_to_it() -> None:
    model, optimizer, meter = made()
    with meter, ModuleMemory(model, optimizer, meter=meter) as memory:
        inputs = torch.randn(BATCH, WIDTH)
        for _ in range(3):
            train(model, optimizer, inputs)
    report = memory.report()
    phases = report["phases"]
    assert set(phases) == {"between_steps", "forward", "backward", "optimizer_step"}
    for phase in phases.values():
        assert sum(phase["categories"].values()) == phase["peak_bytes"], phase
        assert phase["times"] >= 3
    forward = phases["forward"]["categories"]
    assert forward["parameters"] == 3 * WEIGHT and forward["inputs"] == ACTIVATION
    assert forward["optimizer_state"] >= 6 * WEIGHT, "two moments of each, after the first step"
    # A ReLU keeps its result, which is the next layer's input; the last output is the caller's.
    assert forward["activations"] == 3 * ACTIVATION
    assert phases["backward"]["categories"]["gradients"] == 3 * WEIGHT
    assert phases["optimizer_step"]["categories"]["gradients"] == 3 * WEIGHT
    assert report["peak"]["peak_bytes"] == max(phase["peak_bytes"] for phase in phases.values())


def test_modules_say_what_they_keep() -> None:
    model, optimizer, meter = made()
    with meter, ModuleMemory(model, optimizer, meter=meter) as memory:
        train(model, optimizer, torch.randn(BATCH, WIDTH))
    rows = {row["name"]: row for row in memory.report()["modules"]}
    assert sorted(rows) == ["0", "1", "2", "3", "4"]
    assert rows["0"]["kept_bytes"] == ACTIVATION and rows["0"]["parameter_bytes"] == WEIGHT
    assert rows["1"]["type"] == "ReLU" and rows["1"]["calls"] == 1
    assert meter.open == [], "every stretch was ended"


def test_nothing_is_left_and_nothing_changes() -> None:
    model, optimizer, meter = made()
    inputs = torch.randn(BATCH, WIDTH)
    expected = model(inputs)
    with ModuleMemory(model, optimizer, meter=meter):
        assert torch.equal(model(inputs), expected)
        with torch.no_grad():
            assert torch.equal(model(inputs), expected)
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert meter.open == []


def test_a_forward_pass_that_raises_is_left_too() -> None:
    model, optimizer, meter = made()
    with meter, ModuleMemory(model, optimizer, meter=meter) as memory:
        with pytest.raises(RuntimeError):
            model(torch.randn(BATCH, WIDTH + 1))
        train(model, optimizer, torch.randn(BATCH, WIDTH))
    assert memory.report()["phases"]["forward"]["times"] == 2
    assert meter.open == []
