//! The lines that are written while a process lives, to be read if it is killed without a moment to write anything: how near its limit it was, what held
//! the memory, where the evidence is.
//!
//! Must read right after the death, and must never call that death by its cause: when these lines are written it has not happened.

use std::path::PathBuf;

use stormlog_model::{format_bytes, format_duration, format_rate};

use crate::answer::{evidence_line, holders, labelled};
use crate::holder::Holder;

/// Holders that are named.
const HOLDERS: usize = 5;

/// How near its limit a process is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outlook {
    /// `train.py (pid 7)`.
    pub name: String,
    /// When it was looked at, nanoseconds since 1970.
    pub at_ns: u64,
    /// Whether memory is short, or is forecast to be.
    pub is_short: bool,
    /// Bytes in use against the limit.
    pub used_bytes: Option<u64>,
    /// The limit.
    pub limit_bytes: Option<u64>,
    /// Whose limit it is: `cgroup /train`.
    pub limit_source: Option<String>,
    /// Growth in bytes a second, and seconds until the limit is met.
    pub growth: Option<(f64, f64)>,
    /// What holds the memory, the largest first.
    pub held: Vec<Holder>,
    /// The directory of the run.
    pub run: PathBuf,
}

impl Outlook {
    /// The lines, the first a sentence.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.first_line()];
        lines.extend(holders(&self.held, HOLDERS, None));
        if self.is_short {
            lines.extend(self.limit().map(|limit| labelled("limit", &limit)));
            let sure = "written before the end: a kill after this is probably an OOM kill";
            lines.push(labelled("sure", sure));
        }
        lines.push(evidence_line(&self.run));
        lines
    }

    fn first_line(&self) -> String {
        let moment = jiff::Timestamp::from_nanosecond(i128::from(self.at_ns)).unwrap_or_default();
        let at = format!(" at {}", moment.strftime("%Y-%m-%dT%H:%M:%SZ"));
        let name = &self.name;
        let Some((used, limit)) = self.used_bytes.zip(self.limit_bytes).filter(|(_, limit)| *limit > 0)
        else {
            return format!("{name} was running{at}.");
        };
        if !self.is_short {
            let (used, limit) = (format_bytes(used), format_bytes(limit));
            return format!("{name} was running{at}; memory was not tight: {used} of {limit} in use.");
        }
        let growth = self.growth.map(growth_words).unwrap_or_default();
        format!("{name} used {}{at}{growth}.", share_words(used, limit))
    }

    fn limit(&self) -> Option<String> {
        let limit = format_bytes(self.limit_bytes?);
        // Inside a container its own group is the root of all that it sees.
        let source = self.limit_source.as_deref().map(str::trim).unwrap_or_default();
        Some(match source {
            "" | "cgroup" | "cgroup /" => format!("{limit}, of the container"),
            source => format!("{limit}, of {source}"),
        })
    }
}

/// `29.00 GiB of 32.00 GiB (91 %), growing 256.0 MiB/s: full in 12.0 s`: what is used of a limit, with the growth in bytes a second and the seconds
/// that are left at it.
pub(crate) fn usage(used: u64, limit: u64, growth: Option<(f64, f64)>) -> String {
    format!("{}{}", share_words(used, limit), growth.map(growth_words).unwrap_or_default())
}

fn share_words(used: u64, limit: u64) -> String {
    let percent = used as f64 / limit.max(1) as f64 * 100.0;
    format!("{} of {} ({percent:.0} %)", format_bytes(used), format_bytes(limit))
}

fn growth_words((rate, left): (f64, f64)) -> String {
    format!(", growing {}: full in {}", format_rate(rate), format_duration(left.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::memory::Memory;

    #[test]
    fn outlook_names_use_limit_five_holders_and_evidence() {
        let held =
            (1..8).rev().map(|size| Holder::of_place(Memory::Host, size << 30, "/src/kv.py:57 append"));
        let outlook = Outlook {
            name: "train.py (pid 7)".to_owned(),
            at_ns: 1_700_000_000_000_000_000,
            is_short: true,
            used_bytes: Some(29 << 30),
            limit_bytes: Some(32 << 30),
            limit_source: Some("cgroup ".to_owned()),
            growth: Some((f64::from(256 << 20), 12.0)),
            held: held.collect(),
            run: "/data/run".into(),
        };
        let lines = outlook.lines();
        let first = "train.py (pid 7) used 29.00 GiB of 32.00 GiB (91 %) at 2023-11-14T22:13:20Z";
        assert!(lines[0].starts_with(first) && lines[0].contains("full in 12"), "{lines:#?}");
        assert!(lines[1].starts_with("  held by   7.00 GiB  kv.py:57 append"), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.contains("kv.py")).count(), 5);
        assert_eq!(lines[6], "  limit     32.00 GiB, of the container");
        assert_eq!(lines.last().unwrap(), "  evidence  stormlog analyze /data/run");
    }

    #[test]
    fn outlook_without_shortage_states_no_probable_cause() {
        let outlook = Outlook { name: "a (pid 1)".to_owned(), run: "/r".into(), ..Outlook::default() };
        assert_eq!(
            outlook.lines(),
            ["a (pid 1) was running at 1970-01-01T00:00:00Z.", "  evidence  stormlog analyze /r"]
        );
    }
}
