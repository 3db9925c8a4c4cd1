//! Questions to recordings at some paths: runs, attachments, sessions, events, bundles, issues, what went with a moment, summaries.
//!
//! `stormlog query` and `stormlog.query` are two front-ends of [`Store`]; the rows, their order and their words are 0.4.3's where it has the
//! question. Nothing here writes, prints or decides whether a process lives: the caller hands that in. What cannot be read is a [`Warning`] beside
//! the rows, never the end of the answer.

mod attachment_keys;
mod attachment_row;
mod attachments;
mod correlate;
mod envelope;
mod events;
mod evidence;
mod issues;
mod links;
mod markers;
mod moment;
mod named;
mod ooms;
mod runs;
mod sessions;
mod sources;
mod store;
mod summary;

pub use attachment_row::{AttachmentFilter, AttachmentOwner, AttachmentRow};
pub use correlate::{Correlation, CorrelationFilter, DEFAULT_WINDOW_NS, EVIDENCE_KINDS};
pub use envelope::{RUN_ENVELOPE_FILE, RUN_ENVELOPE_FORMAT, RUN_ENVELOPE_VERSION, RunEnvelope, SessionRef};
pub use events::{EventFilter, EventOrigin, EventRows};
pub use evidence::Evidence;
pub use issues::{Issue, IssueFilter, IssueLink};
pub use links::{RunClaims, RunConflict, RunIndex, RunLinks};
pub use markers::{LANDMARK_TYPES, Landmark, landmark};
pub use named::{ATTACHMENTS_FILE, NamedAttachment, NamedFilter};
pub use ooms::{BundleFilter, BundleRow};
pub use runs::{RunContext, RunFacts, RunFilter, RunRow, RunSession, run_contexts};
pub use sessions::{SessionFilter, SessionRow};
pub use sources::{Catalog, CatalogSource, Warning, WarningKind};
pub use store::{Options, Store};
pub use summary::{GROUPS, METRICS, SummaryRow};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The caller wants no more.
    #[error("interrupted")]
    Interrupted,
    /// Neither a moment nor a record is named.
    #[error("correlation requires --at-ns or --record-id")]
    NoAnchor,
    /// No event has that id.
    #[error("record_id not found: {0}")]
    UnknownRecord(String),
    /// The record is of another moment than the one that was named.
    #[error("record_id timestamp does not match at_ns")]
    OtherMoment,
    /// A summary of something that cannot be summed up.
    #[error("unsupported summary metric: {0}")]
    UnknownMetric(String),
    /// A value that breaks a rule.
    #[error("{0}")]
    Problem(String),
}

impl From<stormlog_model::Problem> for QueryError {
    fn from(problem: stormlog_model::Problem) -> Self {
        QueryError::Problem(problem.message)
    }
}

/// A record of named values, in order.
fn record<const N: usize>(fields: [(&str, serde_json::Value); N]) -> stormlog_model::Record {
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

/// Whether a value is the one asked for; `None` asks for any.
fn is_wanted(wanted: &Option<String>, value: Option<&str>) -> bool {
    wanted.is_none() || wanted.as_deref() == value
}
