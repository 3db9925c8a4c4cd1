"""The tensors that stay, with the real PyTorch."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from stormlog import tensor_tracker
from stormlog._torch.cuda_categories import categories_of_storages
from stormlog._torch.live_objects import live_objects
from stormlog.tensor_tracker import HeldTensor, TensorTracker

torch: Any = pytest.importorskip("torch")


@pytest.fixture
def tracker() -> TensorTracker:
    gc.collect()
    tracker = TensorTracker("cpu")
    tracker.step()
    # What was there before is none of these tests'.
    tracker._known.clear()
    return tracker


def of_size(found: list[HeldTensor], size: int) -> HeldTensor:
    return next(held for held in found if held.size_bytes == size)


def test_a_tensor_that_stays_grows_older(tracker: TensorTracker) -> None:
    kept: list[Any] = []
    for number in range(4):
        kept.append(torch.zeros(100 + number))
        tracker.step()
    # Others may be alive: frameworks of earlier tests keep some.
    ours = [(100 + number,) for number in range(4)]
    ages = {ours.index(held.shape): held.age for held in tracker.persistent(min_age=1) if held.shape in ours}
    assert ages == {0: 4, 1: 3, 2: 2, 3: 1}
    oldest = of_size(tracker.persistent(min_age=4), 400)
    assert oldest.kind == "data" and "list of 4" in oldest.held_by and oldest.stack is None
    seen = weakref.ref(kept[0])
    kept.clear()
    assert seen() is None, "it is held weakly"
    tracker.step()
    assert [held for held in tracker.persistent(1) if held.shape in ours] == []


def test_a_watched_tensor_has_a_name_and_a_stack(tracker: TensorTracker) -> None:
    cache = tracker.watch(torch.zeros(77), "kv cache")
    tracker.step()
    tracker.step()
    held = of_size(tracker.persistent(), 77 * 4)
    assert held.name == "kv cache" and held.age == 2
    assert held.stack is not None and "test_a_watched_tensor_has_a_name_and_a_stack" in held.stack
    assert "in watch" not in held.stack
    assert cache.numel() == 77


def test_a_tensor_that_was_only_found_has_the_stack_of_its_block(
    tracker: TensorTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator's segments are a stand-in: there is no GPU here."""
    kept = torch.zeros(55)
    tracker.step()
    tracker.step()
    frames = [
        {"filename": "/train.py", "line": 7, "name": "load"},
        {"filename": "/train.py", "line": 9, "name": "main"},
    ]
    address = kept.untyped_storage().data_ptr()
    blocks = [{"size": 512, "frames": []}, {"size": 512, "frames": frames}]
    segment = {"address": address - 512, "blocks": blocks}
    monkeypatch.setattr(tensor_tracker, "allocator_segments", lambda torch: [segment])
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(tracker, "device_type", "cuda")
    monkeypatch.setattr(tracker, "_is_ours", lambda tensor: tensor.device.type == "cpu")
    assert of_size(tracker.persistent(), 55 * 4).stack == "/train.py:7 load\n/train.py:9 main"
    watched = tracker.watch(kept, "cache")
    stack = of_size(tracker.persistent(), 55 * 4).stack
    assert watched is kept and stack is not None and "test_a_tensor_that_was_only_found" in stack


def test_losses_graphs_gradients_and_parameters_are_distinguished(tracker: TensorTracker) -> None:
    model = torch.nn.Linear(13, 17)
    history: list[Any] = []
    for _ in range(3):
        output = model(torch.ones(5, 13))
        loss = output.sum()
        loss.backward(retain_graph=True)
        history.append(loss)
        tracker.step()
    found = tracker.persistent(min_age=1)
    assert of_size(found, 13 * 17 * 4).kind in {"parameter", "gradient"}
    kinds = {(held.kind, held.size_bytes) for held in found}
    assert {("parameter", 13 * 17 * 4), ("gradient", 13 * 17 * 4), ("loss", 4)} <= kinds
    assert ("graph", 5 * 17 * 4) in {(held.kind, held.size_bytes) for held in tracker.persistent(min_age=1)}
    losses = tracker.persistent(min_age=1, kinds=["loss"])
    assert {held.kind for held in losses} == {"loss"} and len(losses) == 3
    assert any("list of 3" in held.held_by for held in losses)
    assert any("Linear.weight" in word or "weight" in word for held in found for word in held.held_by)
    assert output is not None and len(history) == 3


def test_a_cycle_that_holds_a_tensor_is_named_and_collected(tracker: TensorTracker) -> None:
    class Trainer:
        pass

    def leak() -> weakref.ref[Any]:
        trainer: Any = Trainer()
        trainer.state = {"activations": torch.zeros(4321), "owner": trainer}
        return weakref.ref(trainer.state["activations"])

    gc.disable()
    try:
        seen = leak()
        assert seen() is not None
        found = tracker.cycles()
    finally:
        gc.enable()
    held = of_size(found, 4321 * 4)
    assert "dict.activations" in held.held_by and "Trainer.state" in held.held_by
    assert seen() is None and gc.garbage == [] and gc.get_debug() == 0
    assert tracker.cycles() == []


def test_storages_have_their_category() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(11, 11), torch.nn.BatchNorm1d(11))
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(6, 11)
    model(inputs).sum().backward()
    optimizer.step()
    output = model(inputs)
    weight, tied = model[0].weight, model[0].weight.detach()
    found = categories_of_storages(torch, TensorTracker("cpu")._live(), live_objects())

    def category(tensor: Any) -> str | None:
        return found.get(tensor.untyped_storage().data_ptr())

    assert category(weight) == category(tied) == "parameters", "a view is not another thing"
    assert category(weight.grad) == "gradients"
    assert category(optimizer.state[weight]["exp_avg"]) == "optimizer_state"
    assert category(model[1].running_mean) == "buffers"
    assert category(output) == "activations" and category(inputs) == "data"


def test_a_number_used_again_is_a_new_tensor(tracker: TensorTracker) -> None:
    for _ in range(12):
        block = torch.zeros(999)
        tracker.step()
        del block
    assert all(held.age <= 1 for held in tracker.persistent(0) if held.shape == (999,))
