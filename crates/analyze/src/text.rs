//! Numbers as sentences say them. Must never be parsed back.

pub use stormlog_model::{format_duration as duration, format_rate as rate};

/// `1 event`, `3 events`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Bytes as 0.4.3's reports write them.
pub fn python_bytes(bytes: i128) -> String {
    stormlog_model::text::compat::format_bytes(bytes, stormlog_model::text::compat::Formatter::Device)
}
