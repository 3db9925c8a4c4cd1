"""What keeps memory, asked from inside: bounded in number, switchable off, and of a traceback's frames."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from stormlog import _native
from stormlog._torch import retention

MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_ANSWERED", [])
    monkeypatch.setattr(retention, "_FORESEEN", [])
    monkeypatch.setenv("STORMLOG_WHY", "30000")


def report(directory: Path) -> Any:
    return json.loads((directory / f"retained-{os.getpid()}.json").read_text())


def test_forecast_is_answered_once_an_hour_and_a_failure_beside_it(tmp_path: Path) -> None:
    assert retention.foresee(tmp_path) and report(tmp_path)["reason"] == "forecast"
    assert not retention.foresee(tmp_path)
    assert retention.look("cuda_oom", tmp_path) and report(tmp_path)["reason"] == "cuda_oom"
    assert not retention.look("cuda_oom", tmp_path)


def test_switched_off_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORMLOG_WHY", "off")
    assert not retention.look("cuda_oom", tmp_path) and not retention.foresee(tmp_path)
    assert not _native.heap.report_retained("request", tmp_path)
    assert list(tmp_path.iterdir()) == []


def fail() -> None:
    batch = [bytearray(8 * MIB) for _ in range(12)]
    raise MemoryError(len(batch))


def test_frames_of_a_traceback_count_as_running(tmp_path: Path) -> None:
    try:
        fail()
    except MemoryError as error:
        assert retention.look("exception", tmp_path, error.__traceback__)
    (row,) = [row for row in report(tmp_path)["held"] if row["kept_by"].startswith("`batch`")]
    assert row["kept_by"].startswith(
        "`batch`, a list of 12 bytearrays, local of fail() at test_retention.py:"
    )
    assert row["bytes"] == pytest.approx(96 * MIB, rel=0.02)
