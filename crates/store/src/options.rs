//! How an input is to be read.

/// Choices of the reader's caller.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Accept records without a `schema_version`.
    pub permissive_legacy: bool,
    /// The key of a JSON object that holds the events, when it is not one of the usual ones.
    pub events_key: Option<String>,
    /// The session of records that name none; else one is made from the path.
    pub session_id: Option<String>,
    /// Judge records by the letter of their schema and report every problem, not just the first.
    pub strict: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { permissive_legacy: true, events_key: None, session_id: None, strict: false }
    }
}
