"""Allocator snapshots from Python: the same answers as the command's, as objects."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from stormlog import torch_snapshot

DATA = ROOT / "crates/torch/tests/data"
OOM = DATA / "gpt-oom.pickle.gz"
LEAK = DATA / "gpt-leak.pickle.gz"
TRAIN = DATA / "gpt-train.pickle.gz"


def command(*arguments: str | Path) -> dict[str, Any]:
    """What the command says in JSON."""
    words = [sys.executable, "-m", "stormlog", *map(str, arguments), "--json"]
    answer: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    return answer


def plain(answer: Any) -> Any:
    """An answer as JSON would have it, unset optional fields left out."""
    value = json.loads(json.dumps(dataclasses.asdict(answer)))
    for prediction in value.get("predictions", []):
        if prediction["caution"] is None:
            del prediction["caution"]
    return value


def test_the_report_is_the_command_s_with_nothing_left_out() -> None:
    report = torch_snapshot.load(OOM).report()
    assert plain(report) == command("snapshot", OOM)
    assert report.verdict.kind == "oom_full"
    assert (
        sum(share.bytes for share in report.categories) == report.oom.allocated_bytes if report.oom else False
    )


def test_an_out_of_memory_error_is_explained() -> None:
    oom = torch_snapshot.load(OOM).oom(device_total="24GiB")
    assert oom is not None
    assert oom.request_bytes > oom.largest_usable_free_bytes
    parts = oom.decomposition
    assert parts.device_total_bytes == 24 << 30
    assert (
        parts.requested_bytes
        + parts.rounding_bytes
        + parts.split_slack_bytes
        + parts.pending_free_bytes
        + parts.stranded_bytes
        + parts.releasable_bytes
        + parts.walled_off_bytes
        + parts.other_stream_bytes
        == parts.reserved_bytes
    )
    assert torch_snapshot.load(TRAIN).oom() is None


def test_a_replay_takes_settings_as_text_or_mapping() -> None:
    snapshot = torch_snapshot.load(DATA / "varlen-s11-default.pickle.gz")
    replay = snapshot.replay(
        "expandable_segments:True", {"max_split_size_mb": 64, "garbage_collection_threshold": 0.8}
    )
    assert replay.self_match.matched == replay.self_match.total > 0
    assert [prediction.settings for prediction in replay.predictions] == [
        "expandable_segments:True",
        "max_split_size_mb:64,garbage_collection_threshold:0.8",
    ]
    recorded = json.loads((DATA / "varlen-s11-expandable.json").read_text())
    peak = recorded["stats"]["reserved_bytes.all.peak"]
    assert abs(replay.predictions[0].peak_reserved_bytes - peak) <= peak / 100
    assert plain(replay) == command(
        "replay",
        snapshot.path,
        "--set",
        "expandable_segments:True",
        "--set",
        "max_split_size_mb:64,garbage_collection_threshold:0.8",
    )


def test_a_search_says_whether_it_fits() -> None:
    snapshot = torch_snapshot.load(DATA / "varlen-s11-default.pickle.gz")
    roomy, tight = snapshot.search(limit="80GiB"), snapshot.search(limit=1 << 20)
    assert roomy.limit_bytes == 80 << 30
    assert not any(prediction.oom for prediction in roomy.predictions)
    assert all(prediction.oom for prediction in tight.predictions)
    assert tight.best is None


def test_a_difference_names_the_stack_that_grew() -> None:
    train, leak = torch_snapshot.load(TRAIN), torch_snapshot.load(LEAK)
    diff = train.diff(leak, at="end")
    assert diff.total.delta_bytes == diff.total.after_bytes - diff.total.before_bytes
    assert sum(entry.delta_bytes for entry in diff.stacks) == diff.total.delta_bytes
    assert sum(entry.delta_bytes for entry in diff.categories) == diff.total.delta_bytes
    assert train.diff(train).stacks == ()
    assert train.diff(train, at=0).at == {"after": 0}
    step = train.diff(leak, at="Optimizer.step#AdamW.step@1")
    assert step.at == {"mark": "Optimizer.step#AdamW.step@1"} and step.total.after_bytes > 0
    assert train.diff(leak, device=0).devices[0].total == train.diff(leak).total
    with pytest.raises(ValueError, match="no end of the last lunch on device 0: it has"):
        train.diff(leak, at="lunch")


def test_a_difference_has_every_field_of_its_json() -> None:
    train, leak = torch_snapshot.load(TRAIN), torch_snapshot.load(LEAK)
    assert plain(train.diff(leak)) == train._native.diff(leak._native, "peak", None)


def test_wrong_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        torch_snapshot.load(tmp_path / "absent")
    (tmp_path / "other").write_bytes(b"hello")
    with pytest.raises(ValueError, match="other: "):
        torch_snapshot.load(tmp_path / "other")
    snapshot = torch_snapshot.load(TRAIN)
    with pytest.raises(ValueError, match="max_splitsize_mb"):
        snapshot.replay("max_splitsize_mb:64")
    with pytest.raises(ValueError, match='got "much"'):
        snapshot.search(limit="much")
    with pytest.raises(ValueError, match="no events of device 7"):
        snapshot.search(device=7)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    path = tmp_path / "hostile.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps({"segments": [Hostile()], "device_traces": []})))
    with pytest.raises(ValueError):
        torch_snapshot.load(path)
    assert not (tmp_path / "ran").exists()


def test_repr_names_the_snapshot() -> None:
    snapshot = torch_snapshot.load(TRAIN)
    assert repr(snapshot) == f"<Snapshot {str(TRAIN)!r}: {sum(snapshot.event_counts)} events>"
    assert sum(snapshot.event_counts) > 1000
