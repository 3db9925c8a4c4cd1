//! Times as artifacts write them (`2026-03-03T15:20:30Z`), as moments.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// The moment a text names: UTC where it names no zone, midnight where it names no time; `None` where it is not a time.
pub(super) fn parse_utc(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
    civil.ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The same in nanoseconds since the epoch, to the microsecond that 0.4.3 keeps.
pub(super) fn utc_ns(text: Option<&str>) -> Option<i64> {
    let moment = parse_utc(text?)?;
    // 0.4.3 goes through a float of seconds.
    let seconds = moment.as_microsecond() as f64 / 1e6;
    Some((seconds * 1e9) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_unless_they_name_a_zone() {
        let at = |text: &str| parse_utc(text).map(|moment| moment.as_second());
        assert_eq!(at("1970-01-02"), Some(86_400));
        assert_eq!(at("1970-01-02T00:00:01"), Some(86_401));
        assert_eq!(at(" 1970-01-02T00:00:01Z"), Some(86_401));
        assert_eq!(at("1970-01-02T01:00:01+01:00"), Some(86_401));
        assert_eq!(at("no time"), None);
        assert_eq!(utc_ns(Some("1970-01-01T00:00:02Z")), Some(2_000_000_000));
    }
}
