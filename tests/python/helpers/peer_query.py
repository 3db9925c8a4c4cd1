"""Asks `stormlog.query` of whatever stormlog is installed everything there is to ask; prints it as JSON.

Run as a script: `python peer_query.py PATH...`. Only names that both packages have are used here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

METRICS = [
    "session_count_by_status",
    "peak_allocator_allocated_bytes",
    "peak_allocator_reserved_bytes",
    "peak_device_used_bytes",
    "alert_count",
    "collector_degradation_transitions",
    "interrupted_sessions_with_oom_bundles",
    "hidden_memory_gap_growth",
    "nothing",
]
GROUPS = [None, "session", "session-rank", "rank", "status"]
AT_NS = 1_700_000_050_000_000_000


def outcome(ask: Callable[[], Any]) -> Any:
    """An answer, or the error, as JSON."""
    try:
        answer = ask()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return answer.as_dict() if hasattr(answer, "as_dict") else [row.as_dict() for row in answer]


def filtered(query: Any) -> list[tuple[str, Any]]:
    """Which rows of which list."""
    return [
        ("list_runs", query.RunFilter(job_id="job-7")),
        ("list_runs", query.RunFilter(session_id="s2", rank=0)),
        ("list_runs", query.RunFilter(source_namespace="ci", source_ref="42")),
        ("list_run_attachments", query.RunAttachmentFilter(kind="telemetry_sink_segment")),
        ("list_run_attachments", query.RunAttachmentFilter(session_id="s2", source_namespace="stormlog")),
        ("list_run_attachments", query.RunAttachmentFilter(run_id="nightly")),
        ("list_sessions", query.SessionFilter(status="completed", rank=0, world_size=1)),
        ("list_sessions", query.SessionFilter(has_oom_bundle=True)),
        ("list_sessions", query.SessionFilter(has_oom_bundle=False, source_kind="sink")),
        ("list_sessions", query.SessionFilter(session_id="nobody")),
        ("query_events", query.EventFilter(session_id="s2", event_type="warning")),
        ("query_events", query.EventFilter(session_id="s2", rank=1, limit=3)),
        ("query_events", query.EventFilter(session_id="s2", time_start_ns=AT_NS, time_end_ns=AT_NS + 10**10)),
        ("query_events", query.EventFilter(session_id="s2", has_alert=True)),
        ("query_events", query.EventFilter(session_id="s2", has_alert=False, collector="nobody")),
        ("query_events", query.EventFilter(collector_health_status="healthy", status="completed", limit=5)),
        ("query_events", query.EventFilter(session_id="s2", backend="cuda")),
        ("query_events", query.EventFilter(session_id="s2", limit=0)),
        ("list_oom_bundles", query.OOMBundleFilter(backend="cuda")),
        ("list_oom_bundles", query.OOMBundleFilter(created_after="2026-11-15")),
        ("list_oom_bundles", query.OOMBundleFilter(created_after="2026-11-15T05:00:37+01:00")),
        ("list_oom_bundles", query.OOMBundleFilter(created_before="2020-01-01T00:00:00Z")),
        ("list_oom_bundles", query.OOMBundleFilter(created_before="no time", reason="nothing")),
        ("list_attachments", query.AttachmentFilter(kind="trace")),
        ("list_attachments", query.AttachmentFilter(session_id="s2", rank=0)),
        ("list_issues", query.IssueFilter(kind="alert", severity="warning")),
        ("list_issues", query.IssueFilter(kind="hidden_memory_anomaly")),
        ("list_issues", query.IssueFilter(session_id="s2", state="open")),
        ("list_issues", query.IssueFilter(state="resolved")),
        ("correlate", query.CorrelationFilter()),
        ("correlate", query.CorrelationFilter(record_id="telemetry-0")),
        ("correlate", query.CorrelationFilter(at_ns=AT_NS, window_ns=0)),
        ("correlate", query.CorrelationFilter(at_ns=AT_NS, session_id="s2", rank=1)),
        ("correlate", query.CorrelationFilter(at_ns=AT_NS, job_id="job-7", scope="distributed", limit=20)),
        ("correlate", query.CorrelationFilter(at_ns=AT_NS, kinds=("alert", "attachment"))),
    ]


def around_a_record(query: Any, store: Any) -> dict[str, Any]:
    events = store.query_events(query.EventFilter(session_id="s2"))
    if not events:
        return {}
    from stormlog.telemetry import project_telemetry_event

    event = events[len(events) // 2].event
    record = project_telemetry_event(event).record_id
    return {
        "near": outcome(lambda: store.correlate(query.CorrelationFilter(record_id=record, limit=50))),
        "wide": outcome(
            lambda: store.correlate(query.CorrelationFilter(record_id=record, scope="distributed"))
        ),
        "wrong": outcome(lambda: store.correlate(query.CorrelationFilter(record_id=record, at_ns=1))),
    }


def answers(paths: list[str]) -> dict[str, Any]:
    from stormlog import query

    store: Any = query.open(paths)
    lists = ["list_runs", "list_run_attachments", "list_sessions", "query_events", "list_oom_bundles"]
    found = {name: outcome(getattr(store, name)) for name in [*lists, "list_attachments", "list_issues"]}
    for number, (name, filters) in enumerate(filtered(query)):
        found[f"{name} {number}"] = outcome(partial(getattr(store, name), filters))
    found["record"] = around_a_record(query, store)
    issues = store.list_issues()
    states = {issue.fingerprint_id: " Resolved " for issue in issues[:1]}
    found["states"] = outcome(lambda: store.list_issues(state_overrides=states))
    found["no state"] = outcome(lambda: store.list_issues(state_overrides={"a": "gone"}))
    for metric in METRICS:
        for group in GROUPS:
            found[f"summarize {metric} {group}"] = outcome(partial(store.summarize, metric, group_by=group))
    found["catalog"] = store.catalog.as_dict()
    return found


if __name__ == "__main__":
    # The script's own directory holds tests, not packages.
    sys.path.pop(0)
    sys.stdout.write(json.dumps(answers(sys.argv[1:])))
