//! Moments as the pages write them, in UTC.

/// `2026-11-16 14:03:22Z`; `None` for a moment that no calendar has.
#[must_use]
pub fn clock(at_ns: i128) -> Option<String> {
    Some(jiff::Timestamp::from_nanosecond(at_ns).ok()?.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}
