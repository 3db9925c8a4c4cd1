"""The flight recorder and the classifier; the rules are tested in Rust, likeness to 0.4.3 next door."""

from __future__ import annotations

import errno
import json
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
import torch_stand_in
from stormlog import CPUMemoryTracker, load_telemetry_events
from stormlog.oom_flight_recorder import (
    OOMFlightRecorder,
    OOMFlightRecorderConfig,
    classify_oom_exception,
    exception_facts,
)


class OwnMemoryError(MemoryError):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "builtins.MemoryError"),
        (OwnMemoryError("x"), "builtins.MemoryError"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "message_pattern:cannot allocate memory"),
        (OSError(errno.ENOMEM, ""), "errno:ENOMEM"),
        (RuntimeError("cuda runtime error: out of memory"), "message_pattern:out of memory"),
        (
            RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"),
            "message_pattern:cublas_status_alloc_failed",
        ),
        (OSError(errno.ENOENT, "no such file"), None),
        (RuntimeError("failed to allocate port 80"), None),
    ],
)
def test_real_exceptions_are_classified(error: Exception, reason: str | None) -> None:
    found = classify_oom_exception(error)
    assert (found.is_oom, found.reason) == (reason is not None, reason)


def test_torchs_own_class_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_stand_in.make())
    found = classify_oom_exception(torch_stand_in.OutOfMemoryError("whatever it says"))
    assert found.reason == "torch.cuda.OutOfMemoryError"


class Hostile(Exception):
    errno = 2**80

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_that_fights_back_is_classified_too() -> None:
    assert not classify_oom_exception(Hostile()).is_oom
    facts = exception_facts(Hostile())
    assert (facts.message, facts.errno) == ("<its text could not be had: RuntimeError>", None)
    lone = RuntimeError("out of memory \ud800")
    assert classify_oom_exception(lone).is_oom


def dump(recorder: OOMFlightRecorder, **changes: Any) -> str | None:
    given = {"reason": "r", "exception": MemoryError(), "context": None, "backend": "cpu", **changes}
    return recorder.dump(**given)


def test_the_ring_is_bounded_and_gives_copies(tmp_path: Path) -> None:
    recorder = OOMFlightRecorder(OOMFlightRecorderConfig(True, str(tmp_path), buffer_size=3))
    for number in range(9):
        recorder.record_event({"n": number})
    recorder.snapshot_events()[0]["n"] = "changed"
    assert [event["n"] for event in recorder.snapshot_events()] == [6, 7, 8]
    recorder.clear()
    assert recorder.snapshot_events() == []
    assert OOMFlightRecorder(OOMFlightRecorderConfig(buffer_size=-1))._events.maxlen == 1


def test_the_bundle_just_written_is_never_removed(tmp_path: Path) -> None:
    recorder = OOMFlightRecorder(OOMFlightRecorderConfig(True, str(tmp_path), max_dumps=0, max_total_mb=1))
    recorder.record_event({"text": "x" * (2 << 20)})
    first, second = dump(recorder), dump(recorder)
    assert first is not None and second is not None
    assert not Path(first).exists() and Path(second).exists()
    (tmp_path / "mine").mkdir()
    third = dump(recorder)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["mine", Path(third or "").name])


def test_incomplete_bundle_is_not_listed(tmp_path: Path) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("no system")

    recorder = OOMFlightRecorder(OOMFlightRecorderConfig(True, str(tmp_path)), system_info_provider=broken)
    with pytest.raises(RuntimeError, match="no system"):
        dump(recorder)
    assert list(tmp_path.iterdir()) == []


def test_threads_dump_side_by_side(tmp_path: Path) -> None:
    recorder = OOMFlightRecorder(
        OOMFlightRecorderConfig(True, str(tmp_path), max_dumps=0), system_info_provider=dict
    )
    paths: list[str | None] = []
    threads = [threading.Thread(target=lambda: paths.append(dump(recorder))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 8 == len(list(tmp_path.iterdir()))


def test_metadata_of_any_kind_does_not_cost_the_bundle(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(10, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    given = {"loss": float("nan"), "seed": 2**70, "where": tmp_path, 3: ("a", None), "text": "\ud800"}
    with tracker:
        path = tracker.handle_exception(MemoryError("x"), metadata=cast(dict[str, Any], given))
        inner: list[Any] = []
        inner.append(inner)
        assert tracker.handle_exception(MemoryError("x"), metadata={"in itself": inner}) is None
    assert path is not None
    kept = json.loads((Path(path) / "metadata.json").read_text())["custom_metadata"]
    assert (kept["loss"], kept["seed"], kept["where"]) == ("nan", str(2**70), str(tmp_path))
    assert kept["3"] == ["a", None]


def test_a_trackers_bundle_says_more(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(10, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    with tracker:
        open_phase = tracker.enter_phase("loading")
        path = tracker.handle_exception(MemoryError("x"), context="here", metadata={"n": {1, 2}})
        open_phase.close()
    assert path is not None
    bundle = Path(path)
    evidence = json.loads((bundle / "evidence.json").read_text())
    assert evidence["cause"] == "memory_error"
    assert evidence["peak_rss_bytes"] > 1 << 20
    assert [phase["path"] for phase in evidence["open_phases"]] == [["loading"]]
    assert {row["name"] for row in evidence["memory_map"]} >= {"[heap]", "[anon]"}
    assert evidence["devices"][0]["device_id"] == -1
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["session_status"] == "running" and manifest["event_count"] == 5
    assert set(manifest["files"]) == {file.name for file in bundle.iterdir()}
    events = load_telemetry_events(bundle)
    assert events[-1].metadata["oom_reason"] == "builtins.MemoryError"
    assert all(event.device_used_bytes is not None for event in events)


def test_a_tracker_that_never_started_still_dumps(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    path = tracker.handle_exception(MemoryError())
    assert path is not None and tracker.last_oom_dump_path == path
    assert [event.event_type for event in load_telemetry_events(path)] == ["error"]


def test_unwritable_directory_raises_no_second_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tracker = CPUMemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path / "file"))
    with pytest.raises(MemoryError), tracker.capture_oom():
        raise MemoryError
    assert tracker.last_oom_dump_path is None


def test_large_rings_are_written_whole(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(
        10, max_events=20_000, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path)
    )
    with tracker:
        for number in range(20_000):
            tracker._add_event("note", number, "x")
        path = tracker.handle_exception(MemoryError())
    assert path is not None and (Path(path) / "events.json").stat().st_size > 1 << 20
    assert len(load_telemetry_events(path)) == 20_000
