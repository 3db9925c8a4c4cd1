//! Words and numbers for people. Names from a recording go through [`plain`] before a terminal sees them.

use stormlog_model::format_bytes;

/// Letters of a name that are shown: at its beginning, and at its end.
const LONGEST: (usize, usize) = (300, 100);

/// A name without anything a terminal could take as a command: control characters, and those that turn or hide text. One that would fill
/// the screen loses its middle.
#[must_use]
pub fn plain(name: &str) -> String {
    let (first, last) = LONGEST;
    if let Some((cut, _)) = name.char_indices().nth(first + last + 1) {
        let start = name[..cut].char_indices().nth(first).map_or(cut, |(at, _)| at);
        let end = name.char_indices().nth_back(last - 1).map_or(start, |(at, _)| at);
        return plain(&format!("{}…{}", &name[..start], &name[end..]));
    }
    let is_hostile = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if !name.contains(is_hostile) {
        return name.to_owned();
    }
    name.chars().map(|c| if is_hostile(c) { '\u{fffd}' } else { c }).collect()
}

/// What a request asked for. One for more items than there are addresses is written down as the largest number there is.
#[must_use]
pub fn asked(bytes: u64) -> String {
    let words = format_bytes(bytes);
    if bytes == u64::MAX { format!("{words} or more") } else { words }
}

/// A moment, microseconds after the start.
#[must_use]
pub fn when(time_us: u64) -> String {
    span(time_us.saturating_mul(1000))
}

/// A span of time in nanoseconds.
#[must_use]
pub fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{} ms", ns / 1_000_000),
        1..60 => format!("{:.1} s", ns as f64 / 1e9),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{asked, plain};

    #[test]
    fn names_cannot_command_a_terminal() {
        assert_eq!(plain("\x1b[31mred\x07\r\n"), "\u{fffd}[31mred\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(plain("a\u{202e}b"), "a\u{fffd}b");
        assert_eq!(plain("größe→"), "größe→");
        let long = plain(&format!("{}.py:12", "ö".repeat(10_000)));
        assert_eq!(long.chars().count(), 401);
        assert!(long.starts_with("öö") && long.ends_with("ö.py:12"));
    }
    #[test]
    fn a_request_that_no_number_holds_is_said_to_be_more() {
        assert_eq!(asked(3 << 60), "3.00 EiB");
        assert_eq!(asked(u64::MAX), "16.00 EiB or more");
    }
}
