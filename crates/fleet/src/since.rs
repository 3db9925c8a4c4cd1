//! `--since`: a day, a time, or an age.

/// The moment in microseconds since 1970 that `2026-11-01`, `2026-11-01T10:00:00Z`, `90m`, `12h`, `7d` or `2w` means; `now_us` is the present.
#[must_use]
pub fn parse_since(text: &str, now_us: i64) -> Option<i64> {
    let text = text.trim();
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_microsecond());
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        return Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_microsecond());
    }
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let count: i64 = text.strip_suffix(unit)?.trim_end().parse().ok().filter(|count| *count >= 0)?;
    now_us.checked_sub(count.checked_mul(seconds)?.checked_mul(1_000_000)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_times_and_ages_are_moments_and_other_texts_are_refused() {
        let now = 1_794_000_000_000_000;
        assert_eq!(parse_since("2026-11-06", now), Some(1_793_923_200_000_000));
        assert_eq!(parse_since("2026-11-06T01:00:00Z", now), Some(1_793_926_800_000_000));
        assert_eq!(parse_since("90m", now), Some(now - 5_400_000_000));
        assert_eq!(parse_since("7d", now), Some(now - 604_800_000_000));
        for wrong in ["", "d", "-1d", "7", "7y", "2026-13-01", "99999999999999999d", "é"] {
            assert_eq!(parse_since(wrong, now), None, "{wrong}");
        }
    }
}
