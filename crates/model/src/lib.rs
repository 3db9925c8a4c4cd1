//! The vocabulary every other crate speaks: one telemetry event, one session, one identity.
//!
//! Pure values and rules. This crate must never do I/O, read a clock or the environment (callers hand
//! those in), print, or hold `unsafe`. The rules are those of the telemetry schemas 2, 3 and 4; their
//! error texts are part of the contract, because scripts match them.
#![forbid(unsafe_code)]

pub mod alloc_conf;
pub mod allocator_frames;
mod by_frame;
mod capability;
mod check;
pub mod classify;
mod counters;
mod derived;
pub mod digits;
mod event;
mod fields;
mod finding;
pub mod fingerprint;
mod frame;
pub mod gpu_category;
mod identity;
mod intern;
mod launch;
pub mod layout;
mod legacy;
pub mod memory;
pub mod naming;
mod normalize;
pub mod own_code;
pub mod page_facts;
pub mod phases;
mod problem;
mod project;
mod python_text;
mod record;
pub mod scrub;
mod session;
pub mod stacks;
pub mod text;
pub mod worker;

pub use capability::{Capabilities, KEY as CAPABILITIES_KEY, Support};
pub use check::{check_record, validate_record};
pub use counters::{Counter, Counters};
pub use derived::{DerivedFields, DerivedInputs, SessionDerived, is_degraded_collector};
pub use event::{Event, Head, Metadata};
pub use fields::{FIELDS, Field, SCHEMA_LATEST, Schema};
pub use finding::{Evidence, Finding, Holder, Severity};
pub use identity::{Env, Identity, IdentityInputs, attempt, meeting_address, resolve_identity};
pub use intern::Interner;
pub use launch::Launch;
pub use normalize::{Defaults, event_from_record};
pub use problem::Problem;
pub use project::{FieldValue, to_record};
pub use python_text::{float_repr, strip, value_repr, value_str};
pub use session::{SessionStatus, SessionSummary, legacy_session_id, new_session_id, selection_order};
pub use text::{format_bytes, format_duration, format_rate, parse_bytes};

/// A JSON object as read: keys in file order.
pub type Record = serde_json::Map<String, serde_json::Value>;
