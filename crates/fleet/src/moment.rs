//! A time in a report.

/// `2026-11-16T14:03:22Z`; `None` for a time that no clock shows.
#[must_use]
pub fn moment(at_us: i64) -> Option<String> {
    let at = jiff::Timestamp::from_microsecond(at_us).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
