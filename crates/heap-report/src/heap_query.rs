//! What is asked of a capture. The same query gives the same bytes in every view.

use std::str::FromStr;

use stormlog_heap::{HeapReadOptions, Mode};
use stormlog_model::memory::Selection;

use crate::error::ViewError;
use crate::text::when;

/// The selected memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeapQuery {
    /// What lived when the heap was largest.
    #[default]
    Peak,
    /// What lived at the end.
    Leaks,
    /// What was freed after at most this many other allocations of its thread.
    Temporary(u32),
    /// What lived this many microseconds after the start.
    At(u64),
    /// What lived when the program died: at the request that failed, or when it was killed.
    AtDeath,
    /// What was allocated between two times (microseconds since the start) and lived at the second.
    Span(u64, u64),
}

impl HeapQuery {
    /// What the reader must look out for.
    #[must_use]
    pub fn options(self) -> HeapReadOptions {
        let mut options = HeapReadOptions::default();
        match self {
            HeapQuery::Temporary(threshold) => options.temporary_threshold = threshold,
            HeapQuery::At(time) => options.at_us = Some(time),
            HeapQuery::Span(from, to) => options.span_us = Some((from, to)),
            HeapQuery::Peak | HeapQuery::Leaks | HeapQuery::AtDeath => {}
        }
        options
    }

    /// Where the reader keeps the answer.
    #[must_use]
    pub fn mode(self) -> Mode {
        match self {
            HeapQuery::Peak => Mode::Peak,
            HeapQuery::Leaks | HeapQuery::AtDeath => Mode::Leaks,
            HeapQuery::Temporary(_) => Mode::Temporary,
            HeapQuery::At(_) => Mode::At,
            HeapQuery::Span(..) => Mode::Span,
        }
    }

    /// The query in words.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            HeapQuery::Peak => "at the peak".to_owned(),
            HeapQuery::Leaks => "never freed".to_owned(),
            HeapQuery::Temporary(1) => "freed before the next allocation".to_owned(),
            HeapQuery::Temporary(threshold) => format!("freed within {threshold} allocations"),
            HeapQuery::At(time) => format!("after {}", when(time)),
            HeapQuery::AtDeath => "at death".to_owned(),
            HeapQuery::Span(from, to) => {
                format!("allocated between {} and {} and still live", when(from), when(to))
            }
        }
    }
}

/// What is asked of a capture, and of which of its memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    /// The selected memory.
    pub query: HeapQuery,
    /// Whose: the host's, a device's, or all. `None`: the host's where there are records of it, else the first device's.
    pub memory: Option<Selection>,
}

impl From<HeapQuery> for Ask {
    fn from(query: HeapQuery) -> Self {
        Ask { query, memory: None }
    }
}

impl FromStr for HeapQuery {
    type Err = ViewError;

    fn from_str(text: &str) -> Result<Self, ViewError> {
        let wrong = || ViewError::InvalidQuery { text: text.to_owned() };
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        match (name, value) {
            ("peak", "") => Ok(HeapQuery::Peak),
            ("leaks", "") => Ok(HeapQuery::Leaks),
            ("temporary", "") => Ok(HeapQuery::Temporary(1)),
            ("temporary", count) => count.parse().map(HeapQuery::Temporary).map_err(|_| wrong()),
            ("at-death", "") => Ok(HeapQuery::AtDeath),
            ("at", time) => parse_time(time).map(HeapQuery::At).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

/// `90`, `90s`, `1.5m`, `2h`, `250ms` or `1:30` as microseconds.
#[must_use]
pub fn parse_time(text: &str) -> Option<u64> {
    let text = text.trim();
    let mut parts = text.rsplit(':');
    let (last, minutes, hours) = (parts.next()?, parts.next(), parts.next());
    if minutes.is_some() {
        let whole = |part: Option<&str>| part.map_or(Some(0), |part| part.parse::<u64>().ok());
        let seconds: f64 = last.parse().ok().filter(|seconds| (0.0..60.0).contains(seconds))?;
        let minutes = whole(minutes)?.checked_add(whole(hours)?.checked_mul(60)?)?;
        return micros(minutes as f64 * 60.0 + seconds).filter(|_| parts.next().is_none());
    }
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    micros(number.parse::<f64>().ok()? * unit)
}

fn micros(seconds: f64) -> Option<u64> {
    // A hundred years: more is a slip of the finger.
    (0.0..=3.2e9).contains(&seconds).then(|| (seconds * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, micros) in [
            ("1.5", Some(1_500_000)),
            ("250ms", Some(250_000)),
            ("2 min", Some(120_000_000)),
            ("1:30", Some(90_000_000)),
            ("1:00:01.5", Some(3_601_500_000)),
            ("1:75", None),
            ("-3", None),
            ("soon", None),
            ("1:2:3:4", None),
            ("1e99h", None),
        ] {
            assert_eq!(parse_time(text), micros, "{text}");
        }
    }

    #[test]
    fn questions_have_names() {
        assert_eq!("temporary:4".parse::<HeapQuery>().unwrap(), HeapQuery::Temporary(4));
        assert_eq!("at:2s".parse::<HeapQuery>().unwrap(), HeapQuery::At(2_000_000));
        assert!("everything".parse::<HeapQuery>().is_err());
    }
}
