//! How an input is to be read, and the strict path every format's records take when the quick one gives up.

use stormlog_model::{Defaults, Event, Interner, Record, check_record, event_from_record};

use crate::{SourcePosition, StoreError};

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

impl ReadOptions {
    /// The event of one record. `collector` is the name given to a legacy record that has none.
    pub(crate) fn event(
        &self,
        record: &Record,
        position: SourcePosition,
        default_session: &str,
        collector: &str,
        interner: &mut Interner,
    ) -> Result<Event, StoreError> {
        if self.strict && record.contains_key("schema_version") {
            let problems = check_record(record);
            if !problems.is_empty() {
                return Err(StoreError::Record { position, problems });
            }
        }
        let defaults = Defaults {
            permissive_legacy: self.permissive_legacy,
            collector,
            session_id: Some(default_session),
            ..Defaults::default()
        };
        let event = event_from_record(record, &defaults, interner);
        event.map_err(|problem| StoreError::record(position, problem))
    }
}
