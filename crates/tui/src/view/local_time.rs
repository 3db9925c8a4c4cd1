//! Times of the axis as the user reads them: local, or in the zone that a test sets.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A zone.
#[derive(Debug, Clone)]
pub(crate) struct LocalTime(TimeZone);

impl LocalTime {
    /// The zone of this machine.
    pub(crate) fn here() -> Self {
        LocalTime(TimeZone::system())
    }

    #[cfg(test)]
    pub(crate) fn utc() -> Self {
        LocalTime(TimeZone::UTC)
    }

    /// `10:22:31`, with this many digits of the second as a column of the screen distinguishes.
    pub(crate) fn clock(&self, at_ms: u64, column_ms: u64) -> String {
        let at = i64::try_from(at_ms).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
        let zoned = at.unwrap_or_default().to_zoned(self.0.clone());
        match column_ms {
            0..100 => zoned.strftime("%H:%M:%S.%3f").to_string(),
            100..1000 => zoned.strftime("%H:%M:%S.%1f").to_string(),
            1000..3_600_000 => zoned.strftime("%H:%M:%S").to_string(),
            _ => zoned.strftime("%m-%d %H:%M").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_has_the_digits_that_a_column_distinguishes() {
        let (time, at) = (LocalTime::utc(), 1_700_000_000_123);
        assert_eq!(time.clock(at, 5), "22:13:20.123");
        assert_eq!(time.clock(at, 500), "22:13:20.1");
        assert_eq!(time.clock(at, 5_000), "22:13:20");
        assert_eq!(time.clock(at, 4_000_000), "11-14 22:13");
        assert_eq!(time.clock(u64::MAX, 5).len(), 12);
    }
}
