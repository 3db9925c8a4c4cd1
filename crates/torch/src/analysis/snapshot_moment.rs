//! A moment that can be named in several recordings: the peak, the end, an event, or a span the program marked.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::peak;
use crate::recording::Recording;

/// The moment that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotMoment {
    /// When the most was allocated.
    Peak,
    /// When the snapshot was taken.
    End,
    /// After this many events.
    After(usize),
    /// Where a span the program marked starts or ends.
    Mark(Mark),
}

/// One end of a span. As text: `NAME`, `start:NAME`, `NAME@3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The span's name, as the program gave it to `record_function`.
    pub name: String,
    /// Where it starts, not where it ends.
    pub start: bool,
    /// Which of several, from 1; the last one when not said.
    pub number: Option<usize>,
}

/// The recording has no such moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {mark} on device {device}: {}", known_spans(known))]
pub struct NoSuchMark {
    /// What was requested.
    pub mark: String,
    /// Where.
    pub device: usize,
    /// Names there are.
    pub known: Vec<String>,
}

/// Names worth listing in a message.
const LISTED: usize = 8;

fn known_spans(known: &[String]) -> String {
    match known {
        [] => "no span is marked in it; record with torch.cuda.memory._record_memory_history(global_record_annotations=True) \
               and torch.profiler.record_function"
            .to_owned(),
        _ => {
            let more = if known.len() > LISTED { ", …" } else { "" };
            let shown: Vec<&str> = known.iter().take(LISTED).map(String::as_str).collect();
            format!("it has {}{more}", shown.join(", "))
        }
    }
}

impl FromStr for SnapshotMoment {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "peak" => SnapshotMoment::Peak,
            "end" => SnapshotMoment::End,
            _ => match text.parse() {
                Ok(events) => SnapshotMoment::After(events),
                Err(_) => SnapshotMoment::Mark(Mark::parse(text)),
            },
        })
    }
}

impl Mark {
    fn parse(text: &str) -> Mark {
        let (start, rest) = match (text.strip_prefix("start:"), text.strip_prefix("end:")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => (false, text),
        };
        let numbered = rest.rsplit_once('@').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        match numbered {
            Some((name, number)) if number > 0 => Mark { name: name.to_owned(), start, number: Some(number) },
            _ => Mark { name: rest.to_owned(), start, number: None },
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.start { "start of " } else { "end of " })?;
        match self.number {
            Some(number) => write!(f, "{} (number {number})", self.name),
            None => write!(f, "the last {}", self.name),
        }
    }
}

impl Serialize for Mark {
    /// As it is typed.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let start = if self.start { "start:" } else { "" };
        let number = self.number.map(|number| format!("@{number}")).unwrap_or_default();
        to.collect_str(&format_args!("{start}{}{number}", self.name))
    }
}

impl fmt::Display for SnapshotMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotMoment::Peak => f.write_str("peak"),
            SnapshotMoment::End => f.write_str("end"),
            SnapshotMoment::After(events) => write!(f, "after {events} events"),
            SnapshotMoment::Mark(mark) => mark.fmt(f),
        }
    }
}

/// The number of events of a recording before the moment.
pub(crate) fn events_until(recording: &Recording<'_>, at: &SnapshotMoment) -> Result<usize, NoSuchMark> {
    let count = recording.snapshot.event_count(recording.device);
    Ok(match at {
        SnapshotMoment::Peak => peak::find(recording).allocated_after,
        SnapshotMoment::End => count,
        SnapshotMoment::After(events) => (*events).min(count),
        SnapshotMoment::Mark(mark) => {
            let time = time_of(recording, mark)?;
            // Events of one microsecond belong to what the mark closes.
            let after = recording.snapshot.trace(recording.device);
            after.take_while(|event| event.time_us.is_none_or(|at| at <= time)).count()
        }
    })
}

fn time_of(recording: &Recording<'_>, mark: &Mark) -> Result<i64, NoSuchMark> {
    let snapshot = recording.snapshot;
    let times = |own: bool| -> Vec<i64> {
        let notes = snapshot.annotations.iter().filter(|note| {
            note.start == mark.start
                && (!own || note.device as usize == recording.device)
                && snapshot.tables.text(note.name) == mark.name
        });
        notes.map(|note| note.time_us).collect()
    };
    // A span is marked on the device that was current; its time is the same for the others.
    let mut found = times(true);
    if found.is_empty() {
        found = times(false);
    }
    let time = match mark.number {
        Some(number) => found.get(number - 1),
        None => found.last(),
    };
    time.copied().ok_or_else(|| {
        let mut known: Vec<String> =
            snapshot.annotations.iter().map(|note| snapshot.tables.text(note.name).to_owned()).collect();
        known.sort_unstable();
        known.dedup();
        NoSuchMark { mark: mark.to_string(), device: recording.device, known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_as_people_type_them() {
        let mark =
            |name: &str, start, number| SnapshotMoment::Mark(Mark { name: name.into(), start, number });
        for (text, moment) in [
            ("peak", SnapshotMoment::Peak),
            ("end", SnapshotMoment::End),
            ("1200", SnapshotMoment::After(1200)),
            ("forward", mark("forward", false, None)),
            ("start:forward@3", mark("forward", true, Some(3))),
            ("end:Optimizer.step#AdamW.step", mark("Optimizer.step#AdamW.step", false, None)),
            ("me@home", mark("me@home", false, None)),
            ("step@0", mark("step@0", false, None)),
        ] {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
    }
}
