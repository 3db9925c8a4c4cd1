//! Words for the numbers of a capture.

use stormlog_model::format_bytes;
use stormlog_model::text::nanoseconds_in_words;

/// What a request asked for. One for more items than there are addresses is written down as the largest number there is.
#[must_use]
pub fn asked(bytes: u64) -> String {
    let words = format_bytes(bytes);
    if bytes == u64::MAX { format!("{words} or more") } else { words }
}

/// A moment, microseconds after the start.
#[must_use]
pub fn when(time_us: u64) -> String {
    nanoseconds_in_words(time_us.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::asked;

    #[test]
    fn a_request_beyond_any_number_is_reported_as_more() {
        assert_eq!(asked(3 << 60), "3.00 EiB");
        assert_eq!(asked(u64::MAX), "16.00 EiB or more");
    }
}
