"""What lies at some paths: sources of events, OOM bundles, runs that say so, attachments somebody named.

What holds events is found by the same rule as for the commands; the two small JSON files that only this
catalogue knows are read here. Nothing found is opened further than its manifest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from stormlog import _native
from stormlog._row import Row
from stormlog.correlation import (
    ATTACHMENTS_FILENAME,
    ATTACHMENTS_FORMAT,
    ATTACHMENTS_SCHEMA_VERSION,
    ExternalAttachment,
)
from stormlog.run_catalog import (
    RUN_ENVELOPE_FILENAME,
    CatalogRunEnvelope,
    attachment_storage_or_default,
    run_envelope_from_payload,
)
from stormlog.run_catalog._envelope import resolved_beside
from stormlog.telemetry_rollups import ROLLUP_FILENAME
from stormlog.telemetry_sink import MANIFEST_FILENAME, resolve_telemetry_sink_segment_paths

SourceKind = Literal[
    "sink",
    "telemetry_json",
    "telemetry_jsonl",
    "telemetry_csv",
    "diagnose_bundle",
    "oom_bundle",
    # What 0.4.3 does not know.
    "telemetry_parquet",
    "ring",
    "log",
]
_SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".parquet", ".ring", ".slog"})
_EVENT_WORDS = ("event", "track", "telemetry")
_DIRECTORIES = frozenset({"sink", "diagnose_bundle", "oom_bundle"})


@dataclass(frozen=True)
class CatalogWarning(Row):
    """Something that could not be read."""

    path: str
    message: str


@dataclass(frozen=True)
class CatalogSource(Row):
    """Something that holds events."""

    path: Path
    source_kind: SourceKind
    event_paths: tuple[Path, ...] = ()
    manifest_path: Path | None = None


@dataclass(frozen=True)
class CatalogOOMBundle(Row):
    """What the manifest of an OOM bundle says."""

    bundle_path: Path
    manifest_path: Path
    created_at_utc: str | None
    backend: str | None
    reason: str | None
    event_count: int | None
    session_id: str | None
    session_status: str | None
    exception_type: str | None = None
    exception_module: str | None = None


class ArtifactCatalog:
    """Everything at some paths. `warnings` grows when a source is read and turns out to be damaged."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        self.paths = tuple(Path(path) for path in given)
        self.sources: list[CatalogSource] = []
        self.oom_bundles: list[CatalogOOMBundle] = []
        self.attachments: list[ExternalAttachment] = []
        self.run_envelopes: list[CatalogRunEnvelope] = []
        self.warnings: list[CatalogWarning] = []
        self._seen: set[tuple[str, Path]] = set()
        self._claims: dict[str, list[Path]] = {}
        for path in self.paths:
            self._discover(path)

    def as_dict(self) -> dict[str, Any]:
        """The catalogue as a dictionary for JSON."""
        lists = ("sources", "oom_bundles", "attachments", "run_envelopes", "warnings")
        return {
            "paths": [str(path) for path in self.paths],
            **{name: [item.as_dict() for item in getattr(self, name)] for name in lists},
        }

    def warn(self, path: Path | str, message: str) -> None:
        """Notes something that could not be read."""
        self.warnings.append(CatalogWarning(str(path), message))

    def _discover(self, path: Path) -> None:
        try:
            if not path.exists():
                self.warn(path, "path does not exist")
            elif path.is_dir():
                for file in [path / RUN_ENVELOPE_FILENAME, *sorted(path.rglob(RUN_ENVELOPE_FILENAME))]:
                    self._read_run(file)
                for file in [path / ATTACHMENTS_FILENAME, *sorted(path.rglob(ATTACHMENTS_FILENAME))]:
                    self._read_sidecar(file)
                known = len(self.sources)
                self._find(path)
                self.sources[known:] = sorted(self.sources[known:], key=lambda one: _order(one, path))
            elif path.is_file():
                self._discover_file(path)
            else:
                self.warn(path, "path is neither a file nor a directory")
        except (OSError, ValueError) as error:
            self.warn(path, str(error))

    def _discover_file(self, path: Path) -> None:
        if path.name == RUN_ENVELOPE_FILENAME:
            self._read_run(path)
        elif path.name == ATTACHMENTS_FILENAME:
            self._read_sidecar(path)
        elif path.name == MANIFEST_FILENAME and read_object(path) is None:
            self.warn(path, "manifest is not a JSON object")
        elif path.suffix.lower() in _SUFFIXES:
            self._find(path)

    def _find(self, path: Path) -> None:
        found, skipped = _native.catalog.find_sources(path)
        for sentence in skipped:
            self.warn(path, sentence)
        for kind, place in found:
            if place.name == MANIFEST_FILENAME:
                self.warn(place, "unrecognized manifest shape")
            else:
                self._add(kind, place)

    def _add(self, kind: str, place: Path) -> None:
        key = (kind, place.resolve())
        if key in self._seen:
            return
        self._seen.add(key)
        manifest = place / MANIFEST_FILENAME if kind in _DIRECTORIES else None
        if manifest is not None and kind == "oom_bundle":
            self.oom_bundles.append(_bundle(place, manifest))
            return
        assert kind in get_args(SourceKind), kind
        events: tuple[Path, ...] = () if kind == "diagnose_bundle" else (place,)
        if kind == "sink":
            events = tuple(resolve_telemetry_sink_segment_paths(place))
        self.sources.append(CatalogSource(place, cast(SourceKind, kind), events, manifest))
        if manifest is not None:
            self._look_inside(place, kind, {*events, place / ROLLUP_FILENAME, manifest})

    def _look_inside(self, directory: Path, kind: str, known: set[Path]) -> None:
        """A sink or a bundle of `diagnose` may have others inside; a sink, files beside its segments."""
        for child in sorted(directory.iterdir()):
            is_file = child not in known and child.is_file() and kind == "sink"
            if child.is_dir() or (is_file and _is_named_for_events(child)):
                self._find(child)

    def _read_run(self, path: Path) -> None:
        if not self._is_new_file("run", path):
            return
        payload = read_object(path)
        if payload is None:
            self.warn(path, "run envelope is not a JSON object")
            return
        run = run_envelope_from_payload(payload, path)
        if run is None:
            self.warn(path, "unrecognized run envelope shape")
            return
        claims = self._claims.setdefault(run.run_id, [])
        claims.append(path)
        if len(claims) == 1:
            self.run_envelopes.append(run)
            return
        # Two files that claim one run: neither is believed.
        self.run_envelopes = [known for known in self.run_envelopes if known.run_id != run.run_id]
        for claimant in claims if len(claims) == 2 else claims[-1:]:
            self.warn(claimant, f"duplicate run envelope run_id {run.run_id!r}")

    def _read_sidecar(self, path: Path) -> None:
        if not self._is_new_file("sidecar", path):
            return
        payload = read_object(path)
        if payload is None:
            self.warn(path, "attachment sidecar is not a JSON object")
            return
        version, name = payload.get("schema_version"), payload.get("format")
        if (version, name) != (ATTACHMENTS_SCHEMA_VERSION, ATTACHMENTS_FORMAT):
            self.warn(path, "unrecognized attachment sidecar shape")
            return
        items = payload.get("attachments")
        if not isinstance(items, list):
            self.warn(path, "attachment sidecar attachments must be a list")
            return
        for number, item in enumerate(items):
            if not isinstance(item, Mapping):
                self.warn(path, f"attachment {number} is not an object")
                continue
            attachment = _attachment(item, path)
            if attachment is None:
                self.warn(path, f"attachment {number} is invalid")
            else:
                self.attachments.append(attachment)

    def _is_new_file(self, kind: str, path: Path) -> bool:
        if not path.is_file() or (kind, path.resolve()) in self._seen:
            return False
        self._seen.add((kind, path.resolve()))
        return True


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_named_for_events(path: Path) -> bool:
    suffix, name = path.suffix.lower(), path.name.lower()
    return suffix == ".jsonl" or (suffix in {".json", ".csv"} and any(word in name for word in _EVENT_WORDS))


def _order(source: CatalogSource, root: Path) -> tuple[bool, bool, Path]:
    """As 0.4.3 lists them: what the directory itself is, then what has a manifest, then the files."""
    return source.path != root, source.manifest_path is None, source.manifest_path or source.path


def _bundle(place: Path, manifest: Path) -> CatalogOOMBundle:
    stated = read_object(manifest) or {}
    exception = read_object(place / "metadata.json") or {}
    return CatalogOOMBundle(
        bundle_path=place,
        manifest_path=manifest,
        event_count=integer(stated.get("event_count")),
        **_texts(stated, ("created_at_utc", "backend", "reason", "session_id", "session_status")),
        **_texts(exception, ("exception_type", "exception_module")),
    )


def _attachment(item: Mapping[str, Any], sidecar: Path) -> ExternalAttachment | None:
    title, kind, url = text(item.get("title")), text(item.get("kind")), text(item.get("url"))
    path = resolved_beside(text(item.get("path")), sidecar)
    start_ns, end_ns = integer(item.get("start_ns")), integer(item.get("end_ns"))
    if title is None or kind is None or (url is None and path is None):
        return None
    if start_ns is not None and end_ns is not None and end_ns < start_ns:
        return None
    metadata = item.get("metadata")
    plain = ("attachment_id", "session_id", "job_id", "run_id", "source_namespace", "source_ref")
    return ExternalAttachment(
        title=title,
        kind=kind,
        url=url,
        path=path,
        rank=integer(item.get("rank")),
        start_ns=start_ns,
        end_ns=end_ns,
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
        sidecar_path=str(sidecar),
        storage=attachment_storage_or_default(item.get("storage")),
        **_texts(item, (*plain, "created_at_utc", "updated_at_utc")),
    )


def _texts(stated: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: text(stated.get(name)) for name in names}


def text(value: object) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def integer(value: object) -> int | None:
    """A whole number, also one that is written as a text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
