//! Recordings that survive anything: telemetry events in the crash-safe files of `stormlog-ring`.
//!
//! A session directory holds `session.json` (identity and state), `events.ring` (always: the last events) and, when
//! the whole history is wanted, `log/`. Each of them can be read on its own.

mod codec;
mod reader;
mod session;
mod thin;
mod writer;

pub use reader::RecordedEvents;
pub use session::{read_session, session_text, write_session};
pub use writer::{EventLog, EventRing, Recorder, RecorderConfig};

pub(crate) use session::{judge, stated_session};
