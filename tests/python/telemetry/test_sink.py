"""The sink and its rollups from Python: names, shapes, errors, threads, forks."""

from __future__ import annotations

import dataclasses
import errno
import gc
import json
import logging
import os
import signal
import threading
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from peer_sink import event
from stormlog import telemetry_rollups, telemetry_sink
from stormlog.session import SessionSummary, create_session_summary
from stormlog.telemetry_rollups import (
    TelemetryRollupFile,
    read_telemetry_rollups,
    resolve_telemetry_rollup_path,
    rollup_coverage_from_manifest,
    telemetry_rollup_file_from_dict,
    telemetry_rollup_file_to_dict,
    write_telemetry_rollups,
)
from stormlog.telemetry_sink import (
    AppendOnlyTelemetrySink,
    TelemetrySinkConfig,
    TelemetrySinkManifest,
    TelemetrySinkSegment,
    read_telemetry_sink_manifest,
    resolve_telemetry_sink_manifest_path,
    resolve_telemetry_sink_segment_paths,
)


def open_sink(root: Path, **settings: Any) -> AppendOnlyTelemetrySink:
    return AppendOnlyTelemetrySink(TelemetrySinkConfig(root_dir=root, **settings))


def manifest_of(root: Path) -> TelemetrySinkManifest:
    manifest = read_telemetry_sink_manifest(root)
    assert manifest is not None
    return manifest


def lines(root: Path) -> list[Any]:
    paths = resolve_telemetry_sink_segment_paths(root)
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_the_defaults_are_those_of_0_4_3() -> None:
    config = TelemetrySinkConfig("x")  # type: ignore[arg-type]
    assert dataclasses.astuple(config) == (
        Path("x"), 50, 2.0, 64 << 20, 10000, 8, 512 << 20, True, 60, None, 1.0, 60.0,
    )  # fmt: skip
    assert telemetry_sink.SINK_SCHEMA_VERSION == 2
    assert telemetry_rollups.DEFAULT_ROLLUP_WINDOW_NS == 60_000_000_000


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"flush_every_events": 0}, "flush_every_events must be >= 1"),
        ({"flush_every_events": -3}, "flush_every_events must be >= 1"),
        ({"flush_every_seconds": 0}, "flush_every_seconds must be > 0"),
        ({"rollover_max_bytes": 0}, "rollover_max_bytes must be >= 1"),
        ({"rollover_max_events": -(10**30)}, "rollover_max_events must be >= 1"),
        ({"retention_max_files": 0}, "retention_max_files must be >= 1"),
        ({"retention_max_total_bytes": 0}, "retention_max_total_bytes must be >= 1"),
        ({"retention_max_total_bytes": 5}, "retention_max_total_bytes must be >= rollover_max_bytes"),
        ({"rollup_window_seconds": 0}, "rollup_window_seconds must be >= 1"),
        ({"max_buffer_bytes": 0}, "max_buffer_bytes must be >= 1"),
        ({"failure_backoff_seconds": 0.0}, "failure_backoff_seconds must be > 0"),
        (
            {"failure_backoff_max_seconds": 0.5},
            "failure_backoff_max_seconds must be >= failure_backoff_seconds",
        ),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        TelemetrySinkConfig(root_dir=Path("x"), **settings)


def test_generous_settings_are_taken(tmp_path: Path) -> None:
    sink = open_sink(
        tmp_path, rollover_max_events=10**30, flush_every_seconds=float("inf"), flush_every_events=1.5
    )
    sink.append({"a": 1})
    assert lines(tmp_path) == []
    sink.append({"a": 2})
    assert lines(tmp_path) == [{"a": 1}, {"a": 2}]
    sink.close()


def test_a_session_from_start_to_end(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "made" / "here")
    assert sink.current_session() is None
    given = create_session_summary(
        source="test", status="completed", session_id="s", ended_at_ns=5, job_id="j"
    )
    started = sink.start_session(given)
    assert started == dataclasses.replace(given, status="running", ended_at_ns=None)
    assert sink.start_session(None) == started == sink.current_session()
    sink.append(MappingProxyType({"session_id": "s", "b": [1.5, None, "\u00e9"], "a": 1}))
    with pytest.raises(
        ValueError, match=r"^telemetry sink record session_id does not match the active session$"
    ):
        sink.append({"session_id": "t"})
    with pytest.raises(ValueError, match=r"^telemetry sink record session_id must be a string$"):
        sink.append({"session_id": 5})
    with pytest.raises(TypeError):
        sink.append({"x": object()})
    assert sink.failure_diagnostics()["buffered_records"] == 1
    sink.close(session_status="incomplete")
    text = (sink.root_dir / "segment-000001.jsonl").read_text()
    assert text == '{"a": 1, "b": [1.5, null, "\\u00e9"], "session_id": "s"}\n'
    manifest = manifest_of(sink.root_dir)
    assert isinstance(manifest.sessions[0], SessionSummary)
    assert manifest.sessions[0].status == "incomplete"
    assert manifest.segments == [
        TelemetrySinkSegment("segment-000001.jsonl", 1, len(text), closed=True, session_id="s")
    ]
    assert (manifest.schema_version, manifest.format) == (2, "stormlog.append_only_telemetry_sink")
    with pytest.raises(ValueError, match="Unsupported session status: done"):
        sink.close("done")


def test_session_has_a_default_source_and_pid(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    started = sink.start_session()
    assert (started.source, started.pid) == ("stormlog.telemetry_sink", os.getpid())
    sink.close()


def test_diagnostics_have_their_keys(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, flush_every_events=1, rollover_max_events=1, retention_max_files=2)
    for number in range(4):
        sink.append({"n": number})
    assert sink.get_diagnostics() == {
        "rollover_count": 4,
        "pruned_segment_count": 2,
        "pruned_bytes": 18,
        "final_retained_files": 2,
        "final_retained_bytes": 18,
    }
    assert sink.failure_diagnostics() == {
        "buffered_records": 0,
        "buffered_bytes": 0,
        "dropped_records": 0,
        "dropped_bytes": 0,
        "flush_failures": 0,
        "consecutive_flush_failures": 0,
        "last_flush_error": None,
    }
    sink.close()


def test_the_operating_system_is_quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as raised:
        open_sink(tmp_path / "file")
    assert raised.value.errno in {errno.EEXIST, errno.ENOTDIR}
    root = tmp_path / "sink"
    sink = open_sink(root, flush_every_events=1)
    sink.start_session()
    (root / "manifest.json").unlink()
    root.rmdir()
    with caplog.at_level(logging.WARNING), pytest.raises(FileNotFoundError) as missing:
        sink.append({"n": 1})
    assert missing.value.filename == str(root / "segment-000001.jsonl")
    text = f"FileNotFoundError: [Errno 2] No such file or directory: '{missing.value.filename}'"
    assert sink.failure_diagnostics()["last_flush_error"] == text
    assert caplog.messages == [f"telemetry sink flush failed: {text}"]
    assert caplog.records[0].name == "stormlog.telemetry_sink"
    root.mkdir()
    sink.close()
    assert lines(root) == [{"n": 1}]


def test_bounded_mode_never_raises(tmp_path: Path) -> None:
    root = tmp_path / "sink"
    sink = open_sink(root, flush_every_events=1, max_buffer_bytes=20, failure_backoff_seconds=30.0)
    (tmp_path / "sink").rmdir()
    for number in range(5):
        sink.append({"n": number})
    seen = sink.failure_diagnostics()
    assert (seen["buffered_records"], seen["dropped_records"], seen["dropped_bytes"]) == (2, 3, 27)
    sink.close()
    assert sink.failure_diagnostics()["dropped_records"] == 5


def test_the_thread_flushes_in_time(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, flush_every_events=1000, flush_every_seconds=0.05)
    sink.append({"n": 1})
    deadline = time.monotonic() + 5
    while not lines(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert lines(tmp_path) == [{"n": 1}]
    before = time.monotonic()
    sink.close()
    assert time.monotonic() - before < 1


def test_a_forgotten_sink_keeps_its_records(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    sink.append({"n": 1})
    del sink
    gc.collect()
    assert lines(tmp_path) == [{"n": 1}]
    assert manifest_of(tmp_path).sessions[0].status == "running"


def test_many_threads_share_one(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, flush_every_events=10)
    sink.start_session()

    def work() -> None:
        for number in range(100):
            sink.append({"n": number})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.close()
    assert len(lines(tmp_path)) == 400


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_neither_hangs_nor_repeats(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, flush_every_events=1000, flush_every_seconds=0.05, retention_max_files=100)
    sink.append({"who": "parent", "session_id": "s"})
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            sink.append({"who": "thread", "session_id": "s"})
            sink.flush(force=True)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                sink.append({"who": "child", "session_id": "s"})
                time.sleep(0.2)
                os._exit(sink.failure_diagnostics()["buffered_records"] != 0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    sink.close()
    found = [line["who"] for line in lines(tmp_path)]
    assert (found.count("parent"), found.count("child")) == (1, 10)


def test_paths_are_resolved(tmp_path: Path) -> None:
    assert resolve_telemetry_sink_segment_paths(tmp_path) == []
    assert resolve_telemetry_sink_manifest_path(tmp_path) is None
    sink = open_sink(tmp_path, write_rollups=False)
    sink.append({"n": 1})
    sink.close()
    manifest, segment = tmp_path / "manifest.json", tmp_path / "segment-000001.jsonl"
    for path in (tmp_path, str(tmp_path), manifest, segment):
        assert resolve_telemetry_sink_manifest_path(path) == manifest
        assert resolve_telemetry_sink_segment_paths(path) == [segment]
        assert resolve_telemetry_rollup_path(path) == tmp_path / "rollups.json"
        assert read_telemetry_rollups(path) is None
    other = tmp_path / "other.txt"
    other.touch()
    assert resolve_telemetry_sink_manifest_path(other) is None
    assert resolve_telemetry_sink_segment_paths(other) == []
    assert resolve_telemetry_sink_segment_paths(tmp_path / "missing") == []


def test_a_hostile_manifest_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text("{}\n")
    root = tmp_path / "sink"
    root.mkdir()
    names = ["../secret.jsonl", str(tmp_path / "secret.jsonl"), ".."]
    segments = [{"filename": name, "closed": True} for name in names]
    (root / "manifest.json").write_text(json.dumps({"schema_version": 2, "segments": segments}))
    assert resolve_telemetry_sink_segment_paths(root) == []
    assert manifest_of(root).segments == []
    sink = open_sink(root, retention_max_files=1, rollover_max_events=1, flush_every_events=1)
    sink.append({"n": 1})
    sink.append({"n": 2})
    sink.close()
    assert (tmp_path / "secret.jsonl").exists()


def rolled(root: Path, count: int = 100) -> TelemetryRollupFile:
    sink = open_sink(root)
    for number in range(count):
        sink.append(event(number, "s"))
    sink.close()
    rollups = read_telemetry_rollups(root)
    assert rollups is not None
    return rollups


def test_rollups_round_trip(tmp_path: Path) -> None:
    rollups = rolled(tmp_path)
    assert rollups.sessions[0].event_count == 100
    assert rollups.coverage == rollup_coverage_from_manifest(
        manifest_of(tmp_path), pruned_segment_count=0, pruned_bytes=0
    )
    record = telemetry_rollup_file_to_dict(rollups)
    assert telemetry_rollup_file_from_dict(MappingProxyType(record)) == rollups
    text = (tmp_path / "rollups.json").read_text()
    assert json.loads(text) == record
    assert write_telemetry_rollups(tmp_path, rollups) == tmp_path / "rollups.json"
    assert (tmp_path / "rollups.json").read_text() == text


def test_stale_and_broken_rollups_are_none(tmp_path: Path) -> None:
    rollups = rolled(tmp_path)
    path = tmp_path / "rollups.json"
    for text in ("", "[]", "{", "{}", path.read_text().replace('"ranks"', '"rank"', 1)):
        path.write_text(text)
        assert read_telemetry_rollups(tmp_path) is None
    write_telemetry_rollups(tmp_path, rollups)
    assert read_telemetry_rollups(path) == rollups
    sink = open_sink(tmp_path)
    sink.append(event(1, "t"))
    sink.flush(force=True)
    assert read_telemetry_rollups(tmp_path) is None
    sink.close()
    assert read_telemetry_rollups(tmp_path) is not None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema_version": 2}, "unsupported telemetry rollup schema_version"),
        ({"format": "x"}, "unsupported telemetry rollup format"),
        ({"schema_version": True}, "schema_version must be an integer"),
        ({"schema_version": 0}, "schema_version must be >= 1"),
        ({"source_manifest": 5}, "source_manifest must be a string or null"),
        ({"sessions": {}}, "sessions must be a list"),
        ({"sessions": [5]}, "sessions item must be an object"),
        ({"coverage": 5}, "coverage must be an object"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    record = telemetry_rollup_file_to_dict(rolled(tmp_path, 1))
    with pytest.raises(ValueError, match=f"^{text}$"):
        telemetry_rollup_file_from_dict({**record, **change})
    del record["sessions"]
    with pytest.raises(ValueError, match=r"^missing required sessions$"):
        telemetry_rollup_file_from_dict(record)


def test_an_empty_sink_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_sink(tmp_path).close()
    text = f"Telemetry sink {tmp_path} retained no segments"
    assert caplog.messages == [f"telemetry rollup write failed: {text}"]


def test_rollups_of_loaded_sessions_are_those_of_the_sink(tmp_path: Path) -> None:
    from stormlog.telemetry import load_telemetry_sessions
    from stormlog.telemetry_rollups import build_telemetry_rollups

    rollups = rolled(tmp_path, 300)
    built = build_telemetry_rollups(
        load_telemetry_sessions(tmp_path), manifest_of(tmp_path), coverage=rollups.coverage
    )
    assert dataclasses.replace(built, generated_at_ns=rollups.generated_at_ns) == rollups
    with pytest.raises(ValueError, match=r"^window_duration_ns must be >= 1$"):
        build_telemetry_rollups([], None, window_duration_ns=0)
    nothing = build_telemetry_rollups([], None)
    assert (nothing.source_manifest, nothing.coverage.retained_segment_count) == (None, 0)
