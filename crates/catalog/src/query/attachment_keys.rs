//! The keys that an attachment has wherever it is listed, in the order of 0.4.3's rows: in three groups, between which each list has keys of its own. Must hold
//! values only, and never decide.

use serde_json::Value;
use stormlog_model::Record;

/// A key and its value.
pub(super) type Pair = (&'static str, Value);

/// What is listed of an attachment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) title: &'a str,
    pub(super) kind: &'a str,
    pub(super) storage: &'static str,
    pub(super) attachment_id: Option<&'a str>,
    pub(super) url: Option<&'a str>,
    pub(super) path: Option<&'a str>,
    pub(super) session_id: Option<&'a str>,
    pub(super) job_id: Option<&'a str>,
    pub(super) ranks: [Option<i64>; 3],
    pub(super) span_ns: [Option<i64>; 2],
    pub(super) source_namespace: Option<&'a str>,
    pub(super) source_ref: Option<&'a str>,
    pub(super) metadata: &'a Record,
}

/// What is listed of a row: the fields have the same names in each kind of it.
macro_rules! listed {
    ($row:expr) => {
        Listed {
            title: &$row.title,
            kind: &$row.kind,
            storage: $row.storage,
            attachment_id: $row.attachment_id.as_deref(),
            url: $row.url.as_deref(),
            path: $row.path.as_deref(),
            session_id: $row.session_id.as_deref(),
            job_id: $row.job_id.as_deref(),
            ranks: [$row.rank, $row.local_rank, $row.world_size],
            span_ns: [$row.start_ns, $row.end_ns],
            source_namespace: $row.source_namespace.as_deref(),
            source_ref: $row.source_ref.as_deref(),
            metadata: &$row.metadata,
        }
    };
}
pub(super) use listed;

impl Listed<'_> {
    /// What it is and where.
    pub(super) fn subject(&self) -> [Pair; 6] {
        [
            ("title", self.title.into()),
            ("kind", self.kind.into()),
            ("storage", self.storage.into()),
            ("attachment_id", self.attachment_id.into()),
            ("url", self.url.into()),
            ("path", self.path.into()),
        ]
    }

    /// Whose it is and of which time.
    pub(super) fn owner(&self) -> [Pair; 7] {
        let ([rank, local_rank, world_size], [start, end]) = (self.ranks, self.span_ns);
        [
            ("session_id", self.session_id.into()),
            ("job_id", self.job_id.into()),
            ("rank", rank.into()),
            ("local_rank", local_rank.into()),
            ("world_size", world_size.into()),
            ("start_ns", start.into()),
            ("end_ns", end.into()),
        ]
    }

    /// What named it.
    pub(super) fn source(&self) -> [Pair; 3] {
        [
            ("source_namespace", self.source_namespace.into()),
            ("source_ref", self.source_ref.into()),
            ("metadata", Value::Object(self.metadata.clone())),
        ]
    }
}

/// An object of keys in their order.
pub(super) fn object(pairs: impl IntoIterator<Item = Pair>) -> Record {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
