"""What is at some paths: sources of events, OOM bundles, runs that describe themselves, named attachments.

Found by the native catalog, the same as for the commands (`crates/catalog/src/query`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stormlog import _native
from stormlog._row import Row
from stormlog.correlation import ExternalAttachment
from stormlog.run_catalog._envelope import envelope_of

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
        self._native = _native.catalog.Catalog(list(self.paths))
        self.sources = [_source(row) for row in self._native.sources()]
        self.oom_bundles = [_bundle(row) for row in self._native.oom_bundles()]
        self.attachments = [ExternalAttachment(**row) for row in self._native.sidecar_attachments()]
        self.run_envelopes = [envelope_of(row) for row in self._native.run_envelopes()]

    @property
    def warnings(self) -> list[CatalogWarning]:
        """What could not be read so far."""
        return [CatalogWarning(**row) for row in self._native.warnings()]

    def as_dict(self) -> dict[str, Any]:
        """The catalogue as a dictionary for JSON."""
        lists = ("sources", "oom_bundles", "attachments", "run_envelopes", "warnings")
        return {
            "paths": [str(path) for path in self.paths],
            **{name: [item.as_dict() for item in getattr(self, name)] for name in lists},
        }


def _source(row: Mapping[str, Any]) -> CatalogSource:
    manifest = row["manifest_path"]
    return CatalogSource(
        path=Path(row["path"]),
        source_kind=row["source_kind"],
        event_paths=tuple(map(Path, row["event_paths"])),
        manifest_path=None if manifest is None else Path(manifest),
    )


def _bundle(row: Mapping[str, Any]) -> CatalogOOMBundle:
    places = {name: Path(row[name]) for name in ("bundle_path", "manifest_path")}
    return CatalogOOMBundle(**{**row, **places})
