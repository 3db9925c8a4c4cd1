"""What keeps CPU tensors: lists of results and the autograd graphs that they keep, and views."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from stormlog import _native

torch: Any = pytest.importorskip("torch")
MIB = 1 << 20


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # However slow the machine is, paths are followed to their ends.
    monkeypatch.setenv("STORMLOG_WHY", "30000")

    def look() -> dict[str, int]:
        assert _native.heap.report_retained("request", tmp_path)
        rows = json.loads((tmp_path / f"retained-{os.getpid()}.json").read_text())["held"]
        return {row["kept_by"]: row["bytes"] for row in rows if row["memory"] == "host"}

    return look


def test_losses_that_keep_their_graphs_are_named_for_the_activations(held: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    losses = [model(torch.randn(512, 256)).mean() for _ in range(40)]
    rows = held()
    (graph,) = [text for text in rows if text.startswith("the autograd graph of `losses`")]
    assert "a list of 40 tensors, local of test_losses_that_keep" in graph
    assert "(grad_fn MeanBackward0 → AddmmBackward0" in graph
    # Each loss keeps what the layers save: the result of the ReLU (1 MiB) and the input (half a MiB).
    assert rows[graph] == pytest.approx(60 * MIB, rel=0.05)
    assert len(losses) == 40


def test_tensors_and_views_are_counted_once_for_who_holds_them(held: Any) -> None:
    logits = [torch.zeros(MIB // 4) for _ in range(30)]
    views = [torch.zeros(MIB // 4)[:10] for _ in range(30)]
    sparse = torch.eye(8).to_sparse()
    rows = held()
    for name in ("logits", "views"):
        (text,) = [text for text in rows if text.startswith(f"`{name}`, a list of 30 tensors, local of ")]
        assert rows[text] == pytest.approx(30 * MIB, rel=0.05)
    assert len(logits) == len(views) == 30 and sparse.is_sparse


def test_looking_changes_nothing_about_tensors(held: Any) -> None:
    tensor = torch.ones(MIB, requires_grad=True)
    result = (tensor * 2).sum()
    before = tensor._version, result._version
    held()
    assert (tensor._version, result._version) == before
    result.backward()
    assert bool((tensor.grad == 2).all())
