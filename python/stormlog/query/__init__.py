"""Questions to recordings in local directories: runs, sessions, events, bundles, issues, what goes together.

    import stormlog.query

    store = stormlog.query.open(["runs/"])
    for row in store.list_sessions(SessionFilter(status="interrupted")):
        ...

Reads what the commands read, in every format of theirs, and never changes a recording. What cannot be read is
a warning in `store.catalog.warnings`, not an error.
"""

from stormlog.correlation import (
    AttachmentFilter,
    CorrelationEvidence,
    CorrelationFilter,
    CorrelationResult,
    ExternalAttachment,
)
from stormlog.query._catalog import (
    ArtifactCatalog,
    CatalogOOMBundle,
    CatalogSource,
    CatalogWarning,
    SourceKind,
)
from stormlog.query._rows import (
    EventFilter,
    EventRow,
    IssueFilter,
    OOMBundleFilter,
    OOMBundleRow,
    SessionFilter,
    SessionRow,
    SummaryGroupBy,
    SummaryMetric,
    SummaryRow,
)
from stormlog.query._store import QueryStore, open
from stormlog.run_catalog import (
    AttachmentStorage,
    CatalogRunEnvelope,
    RunAttachmentFilter,
    RunAttachmentRow,
    RunFilter,
    RunRow,
)

__all__ = [
    "ArtifactCatalog",
    "AttachmentFilter",
    "AttachmentStorage",
    "CatalogOOMBundle",
    "CatalogRunEnvelope",
    "CatalogSource",
    "CatalogWarning",
    "CorrelationEvidence",
    "CorrelationFilter",
    "CorrelationResult",
    "EventFilter",
    "EventRow",
    "ExternalAttachment",
    "IssueFilter",
    "OOMBundleFilter",
    "OOMBundleRow",
    "QueryStore",
    "RunAttachmentFilter",
    "RunAttachmentRow",
    "RunFilter",
    "RunRow",
    "SessionFilter",
    "SessionRow",
    "SourceKind",
    "SummaryGroupBy",
    "SummaryMetric",
    "SummaryRow",
    "open",
]
