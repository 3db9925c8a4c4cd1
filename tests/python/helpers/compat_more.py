"""The table's sessions, derived fields, projections and exit codes. Adds to the cases of `compat_cases`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from compat_cases import DROP, call, capabilities, v2, v3, v4
from stormlog import derived_fields, exit_codes, session, telemetry, telemetry_model

# ---- sessions


def summary(session_id: str, status: str, start: int, end: int | None, **more: Any) -> session.SessionSummary:
    return session.SessionSummary(session_id, status, start, end, "h", 1, **more)


SUMMARIES = [
    summary("running", "running", 900, None),
    summary("incomplete", "incomplete", 800, None),
    summary("old", "completed", 100, 200),
    summary("b", "completed", 100, 300),
    summary("a", "completed", 100, 300),
    summary("later-start", "completed", 150, 300),
    summary("end-of-zero", "completed", 250, 0),
    summary("interrupted", "interrupted", 1, None),
    summary("strange", "paused", 5000, None),
]
WHOLE = {
    "session_id": "s",
    "status": "completed",
    "started_at_ns": 5,
    "ended_at_ns": 9,
    "host": "h",
    "pid": 3,
    "job_id": "j",
    "rank": 1,
    "local_rank": 1,
    "world_size": 2,
    "source": "t",
}


def loaded(*filled: str) -> list[Any]:
    return [SimpleNamespace(summary=one, events=[1] if one.status in filled else []) for one in SUMMARIES]


def chosen(sessions: list[Any]) -> Any:
    found = session.select_default_loaded_session(sessions)
    return found and found.summary


call("session/order", session.sort_session_summaries, SUMMARIES[::-1])
call("session/default", session.select_default_session, SUMMARIES)
call("session/default-of-none", session.select_default_session, [])
call("session/default-loaded", chosen, loaded("running"))
call("session/default-loaded-all-empty", chosen, loaded())
call("session/default-loaded-of-none", chosen, [])
call("session/to-dict", lambda: list(session.session_summary_to_dict(SUMMARIES[2]).items()))
call("session/statuses", sorted, session.SESSION_STATUSES)
STATUSES: list[Any] = [" Running ", "Paused", "", None, 4]
for value in STATUSES:
    call(f"session/status-{value}", session.normalize_session_status, value)
PARTS: dict[str, tuple[Any, ...]] = {
    "path": ("/data/events.json", "json"),
    "numbers": (1.5, 7, True),
    "null": (None, "x"),
    "none": (),
    "unicode": ("Zürich", "日本"),
}
for label, parts in PARTS.items():
    call(f"session/legacy-id-{label}", session.stable_legacy_session_id, *parts)
CHANGES: dict[str, dict[str, Any]] = {
    "whole": {},
    "no-session": {"session_id": DROP},
    "blank-session": {"session_id": " "},
    "no-source": {"source": DROP},
    "source-number": {"source": 5},
    "bad-status": {"status": "gone"},
    "no-status": {"status": DROP},
    "no-start": {"started_at_ns": DROP},
    "null-start": {"started_at_ns": None},
    "text-start": {"started_at_ns": " 12 "},
    "float-start": {"started_at_ns": 12.9},
    "no-end": {"ended_at_ns": DROP},
    "no-host": {"host": DROP},
    "no-pid": {"pid": DROP},
    "world-zero": {"world_size": 0},
    "job-number": {"job_id": 5},
    "extra": {"more": {"deep": 1}},
    "word-start": {"started_at_ns": "soon"},
    "list-pid": {"pid": []},
    "bool-pid": {"pid": True},
    "null-rank": {"rank": None},
    "huge-start": {"started_at_ns": 2**70},
}
for label, change in CHANGES.items():
    payload = {key: value for key, value in {**WHOLE, **change}.items() if value is not DROP}
    call(f"session/from-dict-{label}", session.session_summary_from_dict, payload)
call("session/from-dict-list", session.session_summary_from_dict, [])
CREATED = {"source": "x", "session_id": "s", "started_at_ns": 5, "host": "h", "pid": 3}
call("session/create", session.create_session_summary, **CREATED, world_size=0, status="COMPLETED")
call("session/create-bad-status", session.create_session_summary, source="x", status="no")
for at in (0, 1, 8):
    call(f"session/finalize-{at}", session.finalize_session_summary, SUMMARIES[at], ended_at_ns=990)
call("session/update", session.update_session_summary, SUMMARIES[0], status="Interrupted", source="y")
call("session/update-end", session.update_session_summary, SUMMARIES[2], ended_at_ns=None)


def moments(*pairs: tuple[int, str], **more: Any) -> list[SimpleNamespace]:
    return [SimpleNamespace(timestamp_ns=at, event_type=kind, **more) for at, kind in pairs]


INFERRED = {
    "stopped": moments((5, "start"), (9, "stop"), (7, "sample"), (8, "stop"), host="h", pid=4),
    "open": moments((5, "start"), (3, "sample"), host="h", pid=4, rank=2, world_size=4, job_id="j"),
    "bare": moments((5, "sample"), host="x"),
}
infer = session.infer_session_summary_from_events
for label, moment in INFERRED.items():
    known: dict[str, Any] = {"session_id": "s", "events": moment, "source": "t"}
    call(f"session/infer-{label}", infer, **known)
    call(f"session/infer-fallback-{label}", infer, **known, fallback_status="Interrupted")
call("session/infer-none", lambda: infer(session_id="s", events=[], source="t").status)

# ---- derived fields

DERIVED: dict[str, Any] = {
    "whole": v4(),
    "object": SimpleNamespace(**v4()),
    "event": telemetry.TelemetryEventV4(**v4()),
    "no-reserve": v4(allocator_reserved_bytes=0),
    "no-total": v4(device_total_bytes=None),
    "zero-total": v4(device_total_bytes=0),
    "nothing-allocated": v4(allocator_allocated_bytes=None),
    "gap-below-zero": v4(allocator_allocated_bytes=500),
    "no-inactive": v4(allocator_inactive_bytes=None),
    "nothing": {},
    "empty-object": SimpleNamespace(),
    "text-counters": {"allocator_allocated_bytes": "10", "allocator_reserved_bytes": 20.9},
    "bad-counter": {"allocator_allocated_bytes": "ten"},
    "metadata-list": v4(metadata=[]),
    "large": v4(device_total_bytes=2**60, allocator_allocated_bytes=2**59 + 1),
}
for name in ("allocator_inactive", "allocator_allocated", "fragmentation_analysis"):
    DERIVED[f"denied-{name}"] = v4(metadata={"memory_capabilities": capabilities(name)})
for name in ("stormlog.FALLBACK", "x.degraded", "unavailable", "partial", "legacy.unknown", "fine", ""):
    DERIVED[f"collector-{name}"] = v4(collector=name)
for label, event in DERIVED.items():
    call(f"derived/{label}", derived_fields.compute_event_fields, event)
call("derived/enrich-mapping", derived_fields.enrich_event, v4())
call("derived/enrich-event", derived_fields.enrich_event, telemetry.TelemetryEventV3(**v3()))
call("derived/enrich-object", derived_fields.enrich_event, SimpleNamespace(**v2()))
DENIED = v4(metadata={"memory_capabilities": capabilities("fragmentation_analysis")})
RUN = [v4(), v4(allocator_allocated_bytes=900), v4(allocator_inactive_bytes=50, event_type="stop")]
RUNS: dict[str, list[dict[str, Any]]] = {
    "whole": RUN,
    "open": RUN[:2],
    "empty": [],
    "unknown": [{}, {"event_type": "stop"}],
    "denied": [DENIED, DENIED],
    "one-denied": [DENIED, v4()],
}
for label, run in RUNS.items():
    call(f"derived/session-{label}", derived_fields.compute_session_fields, run)
    call(f"derived/reason-{label}", derived_fields.fragmentation_unavailable_reason, run)

# ---- projections

SCOPE = {"name": "forward", "path": ["a", "b"], "scope_id": "i", "parent_scope_id": None, "sequence": 3}
PROJECTED: dict[str, dict[str, Any]] = {
    "v4": v4(),
    "v3": v3(),
    "legacy": {"timestamp": 1.5, "memory_mb": 3},
    "phase": v3(metadata={"phase_scope": SCOPE}),
    "phase-path": v3(metadata={"phase_scope": {"path": ["a", "b"]}}),
    "phase-blank": v3(metadata={"phase_scope": {"name": " ", "path": [5]}}),
    "phase-text": v3(metadata={"phase_scope": "forward"}),
    "severity": v3(metadata={"severity": " WARN ", "severity_text": 5}),
    "unicode": v3(context="Zürich 日本", metadata={"é": "ü"}),
    "floats": v3(metadata={"a": 0.1, "b": 1e22, "c": 1e-7, "d": float("inf")}),
    "objects": v3(
        metadata={"path": Path("/tmp/x"), "t": (1, (2, 3)), "s": {"deep": (4,)}, "n": [{"k": (5,)}]}
    ),
    "number-keys": v3(metadata={1: "a", "b": {2: "c", 10: "d"}}),
    "no-backend": v3(collector="mine", metadata={}),
    "no-backend-host": v3(collector="mine", device_id=-1, metadata={}),
}
for name in ("critical", "error", "collector_degraded", "stop", "peak", " Warning "):
    PROJECTED[f"type-{name}"] = v3(event_type=name)
project = telemetry.project_telemetry_event
to_dict = telemetry_model.projected_record_to_dict
for label, record in PROJECTED.items():
    call(f"project/{label}", project, record)
    call(f"project/{label}-to-dict", lambda given: list(to_dict(project(given)).items()), record)
from_mapping = telemetry_model.project_telemetry_mapping
call("project/mapping-v2", from_mapping, v2(session_id="s"))
for observed in (7, -1, 1.5, True):
    call(f"project/observed-{observed}", from_mapping, v3(), observed_timestamp_ns=observed)
for field in ("session_id", "timestamp_ns", "event_type", "metadata"):
    call(f"project/bad-{field}", from_mapping, v3(**{field: []}))
    call(f"project/no-{field}", from_mapping, v3(**{field: DROP}))
SEVERAL = [v4(), v4(timestamp_ns=5), v4(pid=9), v4(session_id="other"), PROJECTED["phase"]]
several = telemetry.project_telemetry_events(SEVERAL)
call("project/several", telemetry.project_telemetry_events, SEVERAL)
call("project/resources", telemetry_model.unique_projected_resources, several)
call("project/correlations", telemetry_model.unique_projected_correlations, several)
call("project/v2-event", project, telemetry.TelemetryEventV2(**v2()))

# ---- exit codes

for code in (0, 1, 2, 3, 4, 5, 130, 6, -1):
    call(f"exit/status-{code}", exit_codes.verdict_status, code)
for status in ("pass", "error", "usage", "findings", "gate_failed", "invalid_input", "interrupted", "nope"):
    call(f"exit/code-{status}", lambda status: int(exit_codes.exit_code_for_status(status)), status)
for found in (True, False):
    call(f"exit/findings-{found}", lambda found: int(exit_codes.completed_with_findings(found)), found)
call("exit/names", lambda: [(code.name, code.value) for code in exit_codes.ExitCode])
