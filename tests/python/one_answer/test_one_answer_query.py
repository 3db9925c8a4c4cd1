"""One answer: `stormlog query` and `stormlog.query` give the same rows for the same recordings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import peer_query
import peer_sink
import pytest
from compat_cases import capabilities, v4
from stormlog import load_telemetry_events, query
from stormlog.correlation import CorrelationFilter
from stormlog.issues import IssueFingerprint, normalize_text_dimension
from stormlog.phases import PhaseReplayIndex, summarize_phase_attribution
from stormlog.timeline_markers import TimelineMarker, derive_timeline_markers

START_NS = 1_700_000_000_000_000_000
# Texts whose numbers the two implementations once normalized differently; the right sides are 0.4.3's.
TEXTS = {
    "used=95%": "used=<num>",
    "cuda:0": "cuda:<num>",
    "code=15": "code=<num>",
    "7.61GB/8.00GB": "<num>.61gb/<num>.00gb",
    "2/8": "<num>/<num>",
    "Memory 95% used": "memory <num> used",
    "at 0xDEADbeef!": "at <hex>!",
    "  a \t b ": "a b",
    "rank3 12.5%": "rank3 <num>",
}


def command(*words: str | Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "stormlog", "query", *map(str, words), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 5), done.stderr
    return json.loads(done.stdout)


def rows(found: Sequence[Any]) -> Any:
    return json.loads(json.dumps([row.as_dict() for row in found]))


def event(number: int, **changes: Any) -> dict[str, Any]:
    metadata = {"memory_capabilities": capabilities(), **changes.pop("metadata", {})}
    return v4(
        session_id=changes.pop("session_id", "s-1"),
        timestamp_ns=START_NS + number,
        metadata=metadata,
        **changes,
    )


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Alerts with every text, a collector in trouble, an OOM, hidden memory that grows on a CUDA device."""
    events = [
        event(number, event_type="warning", context=text, metadata={"backend": "CUDA:0"})
        for number, text in enumerate(TEXTS)
    ]
    events += [
        event(50, event_type="sample", context=None, metadata={"severity": " Critical ", "backend": "cuda"}),
        event(
            51,
            event_type="collector_degraded",
            metadata={
                "backend": "cuda",
                "collector_health_status": "Unhealthy",
                "collector_partial_fields": ["b", "a"],
                "collector_last_error": "NVML 999: lost at 0xff",
            },
        ),
        event(52, event_type="error", metadata={"backend": "cuda", "oom_reason": "alloc of 2.5 GiB failed"}),
    ]
    second = 1_000_000_000
    events += [
        event(
            number * second,
            event_type="sample",
            session_id="s-2",
            metadata={"backend": "cuda"},
            allocator_allocated_bytes=100,
            allocator_reserved_bytes=200,
            device_used_bytes=300 + 20 * number,
            device_free_bytes=700 - 20 * number,
            device_total_bytes=1000,
        )
        for number in range(1, 21)
    ]
    path = tmp_path / "recording"
    path.mkdir()
    (path / "events.json").write_text(json.dumps(events), encoding="utf-8")
    return path


def test_fingerprint_texts_are_normalized_once(recording: Path) -> None:
    for text, expected in TEXTS.items():
        assert normalize_text_dimension(text) == expected, text
    issues = command("issues", recording, "--kind", "alert")
    categories = {issue["fingerprint"]["dimensions"]["category"] for issue in issues}
    assert set(TEXTS.values()) <= categories
    for issue in issues:
        about = IssueFingerprint(issue["kind"], issue["fingerprint"]["dimensions"])
        assert about.fingerprint_id == issue["fingerprint_id"]


def test_issues_are_the_same(recording: Path) -> None:
    mine = rows(query.open([recording]).list_issues())
    assert command("issues", recording) == mine
    kinds = {issue["kind"] for issue in mine}
    assert kinds == {"alert", "collector_degradation", "oom", "hidden_memory_anomaly"}


def test_hidden_memory_on_cuda_has_the_backend_of_the_recording(recording: Path) -> None:
    found = command("issues", recording, "--kind", "hidden_memory_anomaly")
    assert found and {issue["fingerprint"]["dimensions"]["backend"] for issue in found} == {"cuda"}
    mine = query.open([recording]).list_issues(query.IssueFilter(kind="hidden_memory_anomaly"))
    assert [issue["fingerprint_id"] for issue in found] == [issue.fingerprint_id for issue in mine]


def test_alerts_are_the_same_everywhere(recording: Path) -> None:
    store = query.open([recording])
    for has, flag in ((True, "--has-alert"), (False, "--no-has-alert")):
        mine = rows(store.query_events(query.EventFilter(has_alert=has)))
        assert command("events", recording, flag) == mine
    counted = command("summary", recording, "--metric", "alert_count", "--group-by", "session")
    assert counted == rows(store.summarize("alert_count", group_by="session"))
    assert counted[0]["value"] == len(store.query_events(query.EventFilter(has_alert=True)))


@pytest.fixture
def catalog(tmp_path: Path, recording: Path) -> Path:
    """Run directories, described runs (two of one id), sinks, sidecars, and a run nine levels down."""
    root = tmp_path / "catalog"
    (root / "run-1" / "rank0-pid7").mkdir(parents=True)
    recording.joinpath("events.json").rename(root / "run-1" / "rank0-pid7" / "events.json")
    state = {
        "format": "stormlog.run",
        "schema_version": 1,
        "status": "completed",
        "command": ["python3", "t.py"],
    }
    times = {"started_at_ns": START_NS, "ended_at_ns": START_NS + 5}
    (root / "run-1" / "run.json").write_text(json.dumps({**state, **times}))
    deep = root.joinpath(*map(str, range(9)))
    peer_sink.write(str(deep / "sink"), "deep", [0, 30], {})
    described = {"schema_version": 1, "format": "stormlog.run_envelope", "run_id": "nightly", "metadata": {}}
    about = {"title": "Log", "kind": "log", "storage": "copy", "path": "build.log", "metadata": {}}
    sessions = [{"session_id": "deep", "metadata": {}}]
    (deep / "stormlog_run.json").write_text(
        json.dumps({**described, "sessions": sessions, "attachments": [about]})
    )
    for name in ("twin-a", "twin-b"):
        (root / name).mkdir()
        (root / name / "stormlog_run.json").write_text(json.dumps({**described, "run_id": "twin"}))
    note = {"title": "Note", "kind": "note", "url": "https://note", "session_id": "deep"}
    sidecar = {"schema_version": 1, "format": "stormlog.attachments", "attachments": [note]}
    (deep / "stormlog_attachments.json").write_text(json.dumps(sidecar))
    return root


def test_lists_are_the_same(catalog: Path) -> None:
    store = query.open([catalog])
    assert command("runs", catalog) == rows(store.list_runs())
    assert command("attachments", catalog) == rows(store.list_run_attachments())
    assert command("sessions", catalog) == rows(store.list_sessions())
    assert command("events", catalog) == rows(store.query_events())
    assert command("ooms", catalog) == rows(store.list_oom_bundles())


def test_runs_of_both_kinds_are_known_to_both(catalog: Path) -> None:
    store = query.open([catalog])
    kinds = {row["run_id"]: row["source_kind"] for row in command("runs", catalog)}
    assert kinds == {"run-1": "run_directory", "nightly": "run_envelope"}
    runs = {row.run_id: row for row in store.list_runs()}
    assert runs["run-1"].sessions == ("s-1", "s-2") and runs["run-1"].title == "python3 t.py"
    attached = {row["source_kind"] for row in command("attachments", catalog, "--run-id", "nightly")}
    assert {"run_envelope_attachment", "attachment_sidecar", "sink", "sink_segment"} <= attached
    assert sum("duplicate run envelope run_id 'twin'" in one.message for one in store.catalog.warnings) == 2


def test_summaries_are_the_same(catalog: Path) -> None:
    store: Any = query.open([catalog])
    for metric in peer_query.METRICS[:-1]:
        for group in ("session", "session-rank", "rank", "status"):
            mine = rows(store.summarize(metric, group_by=group))
            assert command("summary", catalog, "--metric", metric, "--group-by", group) == mine


def test_correlation_is_the_same(catalog: Path) -> None:
    at_ns = START_NS + 10
    mine = query.open([catalog]).correlate(CorrelationFilter(at_ns=at_ns))
    found = command("correlate", catalog, "--at-ns", str(at_ns))
    assert found["anchor"] == mine.anchor
    assert found["evidence"] == rows(mine.evidence) != []
    event_id = next(one for one in mine.evidence if one.kind == "telemetry_event").metadata["record_id"]
    again = command("correlate", catalog, "--record-id", event_id)
    assert again["evidence"] == rows(
        query.open([catalog]).correlate(CorrelationFilter(record_id=event_id)).evidence
    )


def boundary(number: int, action: str, sequence: int, **changes: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "action": action,
        "name": "load",
        "path": ["train", "load"],
        "thread_name": "main",
    }
    scope = {**scope, "scope_id": f"s-1:{sequence}", "thread_id": 7, "sequence": sequence, **changes}
    return event(number, event_type=f"phase_{action}", metadata={"phase_scope": scope})


def test_landmarks_and_phases_are_the_same(tmp_path: Path) -> None:
    events = [
        event(0, event_type=" start ", context="  "),
        boundary(1, "enter", 1),
        boundary(2, "enter", 2, parent_scope_id=3, path=["broken"]),
        boundary(3, "enter", 4, thread_id=True, path=["other", "", "thread"]),
        event(4, event_type="error", context=" said ", metadata={"oom_reason": " full "}),
        event(5, event_type="error", context=None, metadata={"oom_dump_path": "x"}),
        boundary(6, "exit", 1),
        boundary(7, "enter", 5, thread_id=1, name="\x1f"),
        event(9, event_type="stop", context=None),
    ]
    (tmp_path / "events.json").write_text(json.dumps(events))
    loaded = load_telemetry_events(tmp_path / "events.json")

    def shown(markers: Sequence[TimelineMarker]) -> set[tuple[Any, ...]]:
        return {(one.label, one.severity, one.start_ns, one.end_ns or one.start_ns) for one in markers}

    mine = shown(derive_timeline_markers(loaded))
    assert {label for label, *_ in mine} == {
        *("Tracking started", "said", "OOM detected", "Tracking stopped"),
        *("Phase: train / load", "Phase: other / thread"),
    }
    # The same of dictionaries, and of the command.
    assert shown(derive_timeline_markers(events)) == mine
    found = command("correlate", tmp_path, "--at-ns", str(START_NS))["evidence"]
    theirs = {
        (one["title"], one["metadata"]["severity"], one["start_ns"], one["end_ns"] or one["start_ns"])
        for one in found
        if one["kind"] == "timeline_marker"
    }
    assert theirs == mine


def test_a_phase_is_attributed_the_same_way_live_and_loaded(tmp_path: Path) -> None:
    events = [boundary(1, "enter", 1), boundary(2, "enter", 2, path=["eval"], thread_id=9), event(5)]
    (tmp_path / "events.json").write_text(json.dumps(events))
    loaded = load_telemetry_events(tmp_path / "events.json")
    of_buffer, of_objects = (PhaseReplayIndex.from_events(one) for one in (loaded, list(loaded)))
    for at_ns in range(START_NS, START_NS + 7):
        asked: Any = {"timestamp_ns": at_ns, "session_id": "s-1"}
        assert of_buffer.resolve(**asked) == of_objects.resolve(**asked)
    found = of_buffer.resolve(timestamp_ns=START_NS + 3, session_id="s-1")
    assert summarize_phase_attribution(found) == "(likely) eval"
    own = of_buffer.resolve(timestamp_ns=START_NS + 3, session_id="s-1", origin_thread_id=7)
    assert summarize_phase_attribution(own) == "train / load"
