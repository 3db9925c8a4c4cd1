"""What is done after an import: once, not before, and without a trace on the module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest
from stormlog._torch.post_import import when_imported

NAME = "a_module_for_post_import"


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / f"{NAME}.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    heard: list[str] = []

    def hear() -> None:
        heard.append(f"value is {sys.modules[NAME].value}")
        raise ValueError("of no interest to who imports it")

    when_imported(NAME, hear)
    return heard


def test_callback_runs_once_and_leaves_no_finder(heard: list[str]) -> None:
    finders = len(sys.meta_path)
    module = importlib.import_module(NAME)
    assert heard == ["value is 5"] and len(sys.meta_path) == finders - 1
    assert sorted(vars(module.__spec__.loader)) == ["name", "path"]  # type: ignore[union-attr]
    importlib.reload(module)
    assert heard == ["value is 5"]


def test_find_spec_does_not_run_the_callback(heard: list[str]) -> None:
    assert importlib.util.find_spec(NAME) is not None and importlib.util.find_spec(NAME) is not None
    assert heard == []
    importlib.import_module(NAME)
    assert heard == ["value is 5"]


def test_callback_runs_at_once_for_an_imported_module(heard: list[str]) -> None:
    importlib.import_module(NAME)
    again: list[int] = []
    when_imported(NAME, lambda: again.append(1))
    assert again == [1]


def test_two_callbacks_for_one_module_both_run(heard: list[str]) -> None:
    when_imported(NAME, lambda: heard.append("and the second"))
    module = importlib.import_module(NAME)
    assert sorted(heard) == ["and the second", "value is 5"]
    assert sorted(vars(module.__spec__.loader)) == ["name", "path"]  # type: ignore[union-attr]


def test_missing_module_stays_missing(heard: list[str]) -> None:
    when_imported("no_such_module_at_all", lambda: heard.append("no"))
    assert importlib.util.find_spec("no_such_module_at_all") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")
    assert heard == []
