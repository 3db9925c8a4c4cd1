"""`stormlog.query` on real recordings: the answers of stormlog 0.4.3, and what it cannot answer.

The other package is the real one: STORMLOG_PEER_PYTHON names an interpreter that has it installed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import peer_query
import peer_sink
import pytest
from compat_cases import capabilities, v4
from compat_differences import QUERY_DIFFERENCES
from places import GOLDEN, HELPERS
from stormlog import query
from stormlog.correlation import CorrelationFilter
from stormlog.issues import IssueEvidenceLink, IssueFingerprint, StormlogIssue, normalize_issue_state
from stormlog.recording import Recorder
from stormlog.session import create_session_summary

PEER_FILES = GOLDEN / "peer-0.4.3"
PEER = os.environ.get("STORMLOG_PEER_PYTHON")
NEEDS_PEER = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON is not set: no interpreter with stormlog 0.4.3 to compare with"
)
SMALL = {"rollover_max_events": 40, "flush_every_events": 7, "rollup_window_seconds": 30}
RUN = {
    "schema_version": 1,
    "format": "stormlog.run_envelope",
    "run_id": "nightly",
    "title": "Nightly",
    "source_namespace": "ci",
    "source_ref": "42",
    "tags": ["gpu"],
    "sessions": [{"session_id": "s2", "rank": 0, "metadata": {}}],
    "attachments": [
        {"title": "Log", "kind": "log", "storage": "copy", "path": "build.log", "metadata": {"size": 3}},
        {"title": "Job", "kind": "ci", "storage": "reference", "url": "https://ci/42", "metadata": {}},
    ],
    "metadata": {"owner": "me"},
}
SIDECAR: dict[str, Any] = {
    "schema_version": 1,
    "format": "stormlog.attachments",
    "attachments": [
        {"title": "Board", "kind": "dashboard", "url": "https://board", "job_id": "job-7", "rank": "0"},
        {"title": "Trace", "kind": "trace", "path": "t.json", "session_id": "s2", "start_ns": 5, "end_ns": 9},
        {"title": "Note", "kind": "note", "url": "https://note", "created_at_utc": "2023-11-14T22:14:05Z"},
        {"title": "Backwards", "kind": "trace", "url": "x", "start_ns": 9, "end_ns": 5},
        {"title": "Nowhere", "kind": "trace"},
        "no object",
    ],
}


def write_sink(root: Path, session: str, count: int) -> None:
    peer_sink.write(str(root), session, [0, count], SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything at once: files of 0.4.3, sinks, runs, attachments, and damage of each kind."""
    root = tmp_path_factory.mktemp("query") / "data"
    shutil.copytree(PEER_FILES, root)
    # Its CSV files hold metadata as Python wrote it, which only ours reads.
    for path in root.glob("*.csv"):
        path.unlink()
    write_sink(root / "job" / "sink", "s2", 130)
    write_sink(root / "job" / "sink" / "inner", "s3", 12)
    (root / "job" / "stormlog_run.json").write_text(json.dumps(RUN))
    (root / "job" / "stormlog_attachments.json").write_text(json.dumps(SIDECAR))
    for number in range(3):
        other = root / f"twice-{number}"
        other.mkdir()
        (other / "stormlog_run.json").write_text(json.dumps({**RUN, "run_id": "twin"}))
    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "stormlog_run.json").write_text(json.dumps({**RUN, "colour": "red"}))
    (damaged / "stormlog_attachments.json").write_text("[1]")
    (damaged / "events.jsonl").write_text('{"schema_version": 4}\n')
    (damaged / "notes.json").write_text("not telemetry, and not named so")
    return root


def peer(*paths: Path) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(PEER), str(HELPERS / "peer_query.py"), *map(str, paths)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ours(*paths: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(peer_query.answers([str(path) for path in paths])))
    return found


def without(answers: dict[str, Any], *names: str) -> dict[str, Any]:
    """Answers less the lists of warnings, which 0.4.3 words differently, and those named."""
    kept = {name: value for name, value in answers.items() if not name.startswith(names)}
    for value in (kept, *kept.values(), *kept.get("record", {}).values()):
        if isinstance(value, dict):
            value.pop("warnings", None)
    return kept


@NEEDS_PEER
def test_sinks_give_the_answers_of_the_peer(folder: Path) -> None:
    paths = (folder / "job" / "sink" / "inner", folder / "sink")
    assert ours(*paths) == peer(*paths)


@NEEDS_PEER
def test_everything_gives_the_answers_of_the_peer(folder: Path) -> None:
    mine, theirs = ours(folder), peer(folder)
    # It fails where a counter is unknown, and takes the timeline of a bundle for a file of events.
    for metric in ("allocator_allocated", "allocator_reserved", "device_used"):
        assert theirs[f"summarize peak_{metric}_bytes rank"][0] == "TypeError"
        assert mine[f"summarize peak_{metric}_bytes rank"][0]["value"] > 0
    sources = theirs["catalog"]["sources"]
    timeline = [one for one in sources if one["path"].endswith("telemetry_timeline.json")]
    theirs["catalog"]["sources"] = [one for one in sources if one not in timeline]
    assert len(timeline) == 1
    skipped = tuple(QUERY_DIFFERENCES)
    for name, value in without(theirs, *skipped).items():
        assert without(mine, *skipped)[name] == value, name
    assert len(mine) == len(theirs) > 80


@NEEDS_PEER
def test_damage_is_a_warning_as_in_the_peer(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    paths = [
        tmp_path / "nowhere",
        tmp_path / "manifest.json",
        tmp_path / "broken" / "manifest.json",
        folder / "twice-0",
        folder / "twice-1",
        folder / "twice-2",
        folder / "damaged" / "stormlog_run.json",
        folder / "damaged" / "stormlog_attachments.json",
        folder / "damaged" / "notes.json",
    ]
    mine, theirs = ours(*paths), peer(*paths)
    # A file that was named is read whatever it is called; what is wrong with it is said in our words.
    assert mine["catalog"]["warnings"].pop()["message"].startswith("load failed: ")
    assert theirs["catalog"]["warnings"].pop()["message"].startswith("load failed: ")
    assert mine["catalog"]["warnings"] == theirs["catalog"]["warnings"] != []
    assert without(mine) == without(theirs)


def test_unreadable_source_does_not_hide_the_others(folder: Path) -> None:
    store = query.open([folder / "nowhere", folder / "damaged", folder / "sink"])
    assert len(store.list_sessions()) == 1
    texts = {(Path(warning.path).name, warning.message) for warning in store.catalog.warnings}
    assert ("nowhere", "path does not exist") in texts
    assert ("stormlog_run.json", "unrecognized run envelope shape") in texts
    loading = [text for name, text in texts if name == "events.jsonl"]
    assert len(loading) == 1 and loading[0].startswith("load failed: ") and "events.jsonl:1" in loading[0]


def test_one_path_need_not_be_in_a_list(folder: Path) -> None:
    assert query.open(str(folder / "sink")).list_sessions() == query.open([folder / "sink"]).list_sessions()


@pytest.mark.parametrize("wrong", [None, 5, [None], [5]])
def test_invalid_path_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError):
        query.open(wrong)


@pytest.mark.parametrize("changes", [{"scope": "world"}, {"window_ns": -1}, {"limit": -1}])
def test_a_wrong_question_is_a_value_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        CorrelationFilter(at_ns=1, **changes)


def test_a_recording_of_ours_is_found_too(tmp_path: Path) -> None:
    session = create_session_summary(source="test", session_id="ring")
    with Recorder(tmp_path / "recording", session=session) as recorder:
        for number in range(5):
            assert recorder.append(peer_sink.event(number, "ring"))
    store = query.open([tmp_path])
    (row,) = store.list_sessions()
    assert (row.session_id, row.event_count, row.status) == ("ring", 7, "completed")
    assert len(store.query_events(query.EventFilter(session_id="ring"))) == 7
    assert [run.sessions for run in store.list_runs()] == [("ring",)]


def test_a_session_whose_process_was_killed_is_interrupted(tmp_path: Path) -> None:
    """0.4.3 still calls it running."""
    code = (
        "import os, platform, sys, signal; sys.path[:0] = sys.argv[2:]; import peer_sink\n"
        "from stormlog.session import SessionSummary\n"
        "sink = peer_sink.open_sink(sys.argv[1], {})\n"
        "here = dict(host=platform.node(), pid=os.getpid(), source='test')\n"
        "sink.start_session(SessionSummary('k', 'running', peer_sink.START_NS, None, **here))\n"
        "[sink.append(peer_sink.event(number, 'k')) for number in range(20)]\n"
        "sink.flush(force=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(HELPERS), *filter(None, sys.path)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    store = query.open([tmp_path])
    (row,) = store.list_sessions(query.SessionFilter(status="interrupted"))
    last = store.query_events()[-1]
    assert (row.ended_at_ns, row.event_count) == (last.event.timestamp_ns, 20)
    assert last.session_status == "interrupted"


def test_rows_are_values(folder: Path) -> None:
    store = query.open([folder / "sink"])
    session, event = store.list_sessions()[0], store.query_events()[0]
    assert session == query.open([folder / "sink"]).list_sessions()[0]
    assert len({session, store.list_oom_bundles}) == 2
    with pytest.raises(AttributeError):
        session.status = "running"  # type: ignore[misc]
    assert event.as_dict()["session_id"] == event.event.session_id


def test_a_fingerprint_is_about_what_does_not_vary() -> None:
    first = IssueFingerprint(
        "alert", {"text": "Used 17% at 0xAB12", "fields": ["b", "a"], "size": 0.123456789}
    )
    again = IssueFingerprint(
        "alert", {"size": 0.1234567, "fields": {"a", "b"}, "text": " used 23.5%  AT 0xff"}
    )
    assert first.fingerprint_id == again.fingerprint_id
    assert dict(first.dimensions) == {"fields": ("a", "b"), "size": 0.123457, "text": "used <num> at <hex>"}
    with pytest.raises(TypeError):
        first.dimensions["text"] = "changed"  # type: ignore[index]
    with pytest.raises(ValueError, match="unsupported issue kind: leak"):
        IssueFingerprint("leak", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-empty strings"):
        IssueFingerprint("oom", {" ": 1})
    with pytest.raises(ValueError, match="unsupported issue state: gone"):
        normalize_issue_state("gone")


def test_an_issue_has_been_seen() -> None:
    link = IssueEvidenceLink(session_id="s")
    with pytest.raises(ValueError, match="hit_count must be >= 1"):
        StormlogIssue(IssueFingerprint("oom", {}), "t", "critical", 0, None, None, (), link, ())


def _odd_events(draw: random.Random, count: int) -> list[dict[str, Any]]:
    """Events of two sessions and three ranks: in no order, with ties, unknown counters and odd words."""
    kinds = ["sample"] * 6 + ["warning", " warning ", "critical", "error", "collector_degraded", "start"]
    severities: list[Any] = [None, "info", " Warning", "CRITICAL ", 3, ["error"]]
    healths: list[Any] = [None, "healthy", " Degraded ", "unhealthy", 7]
    return [
        v4(
            session_id=draw.choice(["s-1", "s-2"]),
            rank=draw.randrange(3),
            world_size=3,
            timestamp_ns=1_700_000_000_000_000_000 + draw.randrange(200),
            event_type=draw.choice(kinds),
            metadata={
                "memory_capabilities": capabilities(),
                "severity": draw.choice(severities),
                "collector_health_status": draw.choice(healths),
                "backend": draw.choice(["cuda", "CUDA", None]),
                "oom_reason": draw.choice(["cuda", None]),
            },
            allocator_reserved_bytes=draw.choice([200, 220, 240]),
            device_used_bytes=draw.choice([300, 320, 340]),
            device_free_bytes=660,
        )
        for _ in range(count)
    ]


def _is_asked_for(row: dict[str, Any], filters: query.EventFilter) -> bool:
    """The rule of a filter, row by row, as 0.4.3 has it."""
    metadata = row["metadata"]
    severity = metadata.get("severity")
    alerts = {"warning", "critical", "error"}
    is_alert = row["event_type"] in alerts or (
        isinstance(severity, str) and severity.strip().lower() in alerts
    )
    plain = {"session_id", "event_type", "rank", "collector"}
    return (
        all(getattr(filters, name) in (None, row[name]) for name in plain)
        and filters.status in (None, row["session_status"])
        and all(
            getattr(filters, name) in (None, metadata.get(name))
            for name in ("collector_health_status", "backend")
        )
        and filters.has_alert in (None, is_alert)
        and (filters.time_start_ns is None or row["timestamp_ns"] >= filters.time_start_ns)
        and (filters.time_end_ns is None or row["timestamp_ns"] <= filters.time_end_ns)
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_in_order", [True, False])
def test_filters_pick_what_their_rule_picks(tmp_path: Path, seed: int, is_in_order: bool) -> None:
    events = _odd_events(random.Random(seed), 400)
    if is_in_order:
        events.sort(key=lambda event: event["timestamp_ns"])
    path = tmp_path / "events.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    start, each = 1_700_000_000_000_000_000, query.EventFilter
    filters = [
        each(limit=7),
        each(limit=-7),
        each(event_type="warning", limit=5),
        each(event_type="nothing"),
        each(rank=2, has_alert=True),
        each(has_alert=False, session_id="s-2"),
        each(time_start_ns=start + 50, time_end_ns=start + 60),
        each(time_start_ns=-5, rank=-1),
        each(collector_health_status=" Degraded "),
        each(collector_health_status="unhealthy", backend="cuda"),
        each(backend="CUDA"),
        each(collector="nobody"),
    ]
    store = query.open([path])
    rows = [row.as_dict() for row in store.query_events()]
    assert [(row["timestamp_ns"], row["session_id"]) for row in rows] == sorted(
        (event["timestamp_ns"], event["session_id"]) for event in events
    )
    for wanted in filters:
        expected = [row for row in rows if _is_asked_for(row, wanted)][: wanted.limit]
        assert [row.as_dict() for row in store.query_events(wanted)] == expected, wanted
