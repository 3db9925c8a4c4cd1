"""The helpers of `stormlog.run_catalog` on objects of the caller's own; prints what they answer as JSON.

Run as a script: `python peer_run_catalog.py DIRECTORY`, under 0.4.3 and under ours. The directory has a
file of rollups. Only names that both packages have are used here.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stormlog import run_catalog
from stormlog.session import SessionSummary
from stormlog.telemetry_sink import TelemetrySinkManifest, TelemetrySinkSegment

ENVELOPE: dict[str, Any] = {
    "schema_version": 1,
    "format": "stormlog.run_envelope",
    "run_id": "nightly",
    "metadata": {"any": [1, None]},
}
SESSION: dict[str, Any] = {"session_id": "a", "metadata": {}}
ATTACHMENT: dict[str, Any] = {
    "title": "Log",
    "kind": "log",
    "storage": "copy",
    "path": "../build.log",
    "metadata": {"n": 1},
}
# Changes of an envelope; most of them make it none.
CHANGES: list[dict[str, Any]] = [
    {},
    {"title": "T", "description": "", "job_id": "job-7", "tags": ["x", "y"]},
    {"started_at_ns": 5, "ended_at_ns": 9, "created_at_utc": "", "updated_at_utc": None},
    {"source_namespace": "ci", "source_ref": "42"},
    {"sessions": [SESSION, {**SESSION, "session_id": "b", "rank": 3, "role": "train"}]},
    {"attachments": [ATTACHMENT, {**ATTACHMENT, "url": "https://x", "start_ns": 1, "end_ns": 1}]},
    {"schema_version": 2},
    {"schema_version": True},
    {"schema_version": 1.0},
    {"format": "stormlog.run"},
    {"run_id": ""},
    {"run_id": 3},
    {"colour": "red"},
    {"title": ""},
    {"tags": ["x", "x"]},
    {"tags": [""]},
    {"tags": ("x",)},
    {"metadata": []},
    {"metadata": None},
    {"started_at_ns": 9, "ended_at_ns": 5},
    {"started_at_ns": -1},
    {"started_at_ns": True},
    {"started_at_ns": 1.0},
    {"sessions": [{"session_id": "a"}]},
    {"sessions": [{**SESSION, "rank": -1}]},
    {"sessions": [{**SESSION, "world_size": 0}]},
    {"sessions": ({**SESSION},)},
    {"sessions": "a"},
    {"attachments": [{**ATTACHMENT, "storage": "else"}]},
    {"attachments": [{key: value for key, value in ATTACHMENT.items() if key != "path"}]},
    {"attachments": [{**ATTACHMENT, "start_ns": 9, "end_ns": 5}]},
    {"attachments": [{**ATTACHMENT, "path": None}]},
    {"attachments": [3]},
]


def session(name: str, start: int, end: int | None, job: str | None = None, **more: Any) -> Any:
    fields = {"rank": 0, "local_rank": 0, "world_size": 1, "source_path": "/s", "source_kind": "sink"}
    life = {"session_id": name, "started_at_ns": start, "ended_at_ns": end, "job_id": job}
    return SimpleNamespace(**{**life, **fields, "event_count": 3, **more})


def plain(value: Any) -> Any:
    """Any answer as JSON has it; mappings as sorted pairs, because some have keys of two texts."""
    if isinstance(value, SimpleNamespace):
        return vars(value)["session_id"]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return sorted([str(key), plain(inner)] for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def answers(directory: Path) -> dict[str, Any]:
    module: Any = run_catalog
    file = directory / "described" / "stormlog_run.json"
    read = [module.run_envelope_from_payload({**ENVELOPE, **change}, file) for change in CHANGES]
    sessions = [
        session("b", 20, 30, "job-7", rank=1, world_size=2),
        session("a", 10, 30, "job-7"),
        session("a", 11, 31, "job-7", source_path="/copy"),
        session("c", 10, None),
        session("d", 5, 6, "job-8"),
        session("e", 4, 7, "job-8"),
        session("f", 4, 7, "nightly"),
    ]
    described: list[dict[str, Any]] = [
        {"sessions": [SESSION]},
        {"run_id": "by-job", "job_id": "job-8"},
        {"run_id": "claims", "sessions": [SESSION], "source_namespace": "ci", "source_ref": "1"},
        {"run_id": "claims-too", "source_namespace": "ci", "source_ref": "1", "attachments": [ATTACHMENT]},
        {"run_id": "job:job-7", "started_at_ns": 1, "ended_at_ns": 2, "tags": ["x"]},
        {"run_id": "alone", "source_namespace": "ci", "source_ref": "2", "job_id": "job-9"},
    ]
    envelopes = [module.run_envelope_from_payload({**ENVELOPE, **change}, file) for change in described]
    contexts = module.build_run_contexts(sessions, envelopes)
    index = module.build_identity_index(contexts)
    found: dict[str, Any] = {
        "envelopes": read,
        "is envelope": [module.is_run_envelope({**ENVELOPE, **change}) for change in CHANGES],
        "contexts": contexts,
        "rows": [context.to_row(3) for context in contexts.values()],
        "index": index,
        "conflicts": [conflict.message for conflict in index.conflicts],
    }
    summaries = [
        SessionSummary("c", "completed", 10, 30, "h", 7, None, 0, 0, 1, "t"),
        SessionSummary("e", "running", 4, None, "h", 8, "job-8", 1, 1, 2, "t"),
        SessionSummary("elsewhere", "running", 4, None, "h", 8),
    ]
    segments = [
        TelemetrySinkSegment("segment-1.jsonl", 3, 100, True, "c"),
        TelemetrySinkSegment("segment-2.jsonl", 1, 10, False, "d"),
        TelemetrySinkSegment("segment-3.jsonl", 1, 10, False, None),
    ]
    manifest = TelemetrySinkManifest(2, "jsonl", summaries, segments)
    source = SimpleNamespace(path=directory, source_kind="sink", manifest_path=directory / "manifest.json")
    bundles = [
        SimpleNamespace(
            bundle_path=directory / name,
            created_at_utc=at,
            session_id=owner,
            as_dict=lambda name=name: {"name": name},
        )
        for name, at, owner in [
            ("oom-1", "2026-03-03T15:20:30Z", "e"),
            ("oom-2", "yesterday", "c"),
            ("oom-3", None, None),
            ("oom-4", "2026-03-03T15:20:30+02:00", "unknown"),
        ]
    ]
    by_id = {one.session_id: one for one in sessions}
    found["attached"] = {
        "envelopes": module.envelope_attachment_rows(envelopes, contexts),
        "sink": module.sink_attachment_rows(source, manifest, index),
        "segments": module.sink_segment_attachment_rows(source, manifest, index),
        "rollups": module.rollup_attachment_rows(source, manifest, index),
        "diagnose": [module.diagnose_attachment_rows(source, one, index) for one in (*summaries, None)],
        "files": module.flat_telemetry_attachment_rows(SimpleNamespace(path=Path("/s")), contexts),
        "ooms": module.oom_attachment_rows(bundles, index, by_id),
    }
    unnamed = ("attachment_id", "url", "path", "run_id", "session_id", "job_id", "rank", "start_ns", "end_ns")
    sidecar: dict[str, Any] = {
        **dict.fromkeys((*unnamed, "source_namespace", "source_ref", "created_at_utc", "updated_at_utc")),
        "title": "T",
        "kind": "k",
        "storage": "copy",
        "sidecar_path": "/side.json",
        "metadata": {"own": [1]},
    }
    changes: list[dict[str, Any]] = [
        {"run_id": "named", "storage": None, "url": "https://x", "path": "/p"},
        {"session_id": "c", "path": "/p", "rank": 3, "start_ns": 1, "end_ns": 2},
        {"job_id": "job-8", "storage": "else"},
        {"source_namespace": "ci", "source_ref": "2", "session_id": "c"},
        {"source_namespace": "ci", "source_ref": "1"},
        {"source_namespace": "ci", "session_id": "unknown"},
    ]
    outside = [SimpleNamespace(**{**sidecar, **change}) for change in changes]
    found["attached"]["sidecars"] = module.sidecar_attachment_rows(outside, index)
    wanted = [
        *(module.RunAttachmentFilter(kind="k"), module.RunAttachmentFilter(session_id="c", rank=3)),
        *(module.RunAttachmentFilter(source_ref="2"), module.RunAttachmentFilter(job_id="job-8", run_id="x")),
    ]
    found["attachments wanted"] = [
        [module.run_attachment_matches(row, one) for row in found["attached"]["sidecars"]] for one in wanted
    ]
    filters = [
        *(module.RunFilter(session_id="a"), module.RunFilter(rank=1), module.RunFilter(job_id="job-8")),
        module.RunFilter(source_namespace="ci", source_ref="2"),
        module.RunFilter(run_id="alone", rank=0),
    ]
    found["matches"] = [
        [module.run_matches(row, one) for row in found["rows"]] for one in (*filters, module.RunFilter())
    ]
    return {name: plain(value) for name, value in found.items()}


if __name__ == "__main__":
    # The script's own directory holds tests, not packages.
    sys.path.pop(0)
    sys.stdout.write(json.dumps(answers(Path(sys.argv[1]))))
