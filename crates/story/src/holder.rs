//! A line of the program that holds memory: how much of which memory, what keeps it, since when and how fast it grows.
//!
//! The order of holders is decided here, for every view: those of the memory whose request failed first, then the largest. A holder that is not a line
//! (another process, a kind of memory) has its name in place of the function.

use serde::Serialize;
use serde_json::Value;
use stormlog_heap_report as heap;
use stormlog_model::memory::Memory;
use stormlog_model::{format_bytes, format_duration, format_rate};

/// A line and what it holds of one memory. Scripts know these names (`held` of `oom show --json` and of `analyze --json`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Holder {
    /// Of which memory.
    pub memory: Memory,
    /// How much.
    pub bytes: u64,
    /// Allocations they came in; `None` where only the sum is known.
    pub count: Option<u64>,
    /// File.
    pub file: String,
    /// Line; 0 where only the function is known.
    pub line: u32,
    /// Function.
    pub function: String,
    /// What keeps it from being freed, in one line: `` `losses`, a list of 812 tensors, local of train() at train.py:31 ``.
    pub kept_by: Option<String>,
    /// Whether that was found out when a limit was forecast: what it counts has grown since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_kept_at_forecast: bool,
    /// How it grew, where it did.
    pub growth: Option<Growth>,
    /// The bytes are an estimate.
    pub is_estimate: bool,
}

/// How a line grew.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Since when, nanoseconds since 1970; `None` where only the pace is known.
    pub since_ns: Option<u64>,
    /// The same as a time of day: `2026-11-16T14:03:22Z`.
    pub since: Option<String>,
    /// Seconds between the start of the process and that moment.
    pub after_start_seconds: Option<f64>,
    /// For how long, in seconds.
    pub seconds: Option<f64>,
}

impl Growth {
    /// `grew 37 MiB/min for 12 min since 14:03:22Z (3.1 s after the start)`, or `from the start`.
    fn words(&self) -> String {
        let time = self.seconds.map(|seconds| format!(" for {}", format_duration(seconds)));
        if self.after_start_seconds.is_some_and(|seconds| seconds < 1.0) {
            let time = time.unwrap_or_default();
            return format!("grew {}{time} from the start", format_rate(self.bytes_per_second));
        }
        let clock = self
            .since
            .as_deref()
            .and_then(|since| since.split_once('T'))
            .map(|(_, clock)| format!(" since {clock}"));
        let after = self.after_start_seconds.filter(|_| clock.is_some());
        let after = after.map(|seconds| format!(" ({} after the start)", format_duration(seconds)));
        let [time, clock, after] = [time, clock, after].map(Option::unwrap_or_default);
        format!("grew {}{time}{clock}{after}", format_rate(self.bytes_per_second))
    }
}

impl From<&heap::Holder> for Holder {
    fn from(found: &heap::Holder) -> Self {
        let heap::Holder { memory, bytes, file, line, function } = found.clone();
        Holder { file, line, ..Holder::named(memory, bytes, function) }
    }
}

impl Holder {
    /// A holder that is not a line: a process, a kind of memory.
    #[must_use]
    pub fn named(memory: Memory, bytes: u64, function: String) -> Self {
        Holder {
            memory,
            bytes,
            count: None,
            file: String::new(),
            line: 0,
            function,
            kept_by: None,
            is_kept_at_forecast: false,
            growth: None,
            is_estimate: false,
        }
    }

    /// Lines of a capture's digest; those of a sampled heap are estimates.
    pub(crate) fn of_digest(
        digest: &heap::HeapDigest,
        found: &[heap::Holder],
    ) -> impl Iterator<Item = Holder> {
        found.iter().map(|one| Holder { is_estimate: digest.is_sampled(one.memory), ..Holder::from(one) })
    }

    /// `kv.py:57 append`, as an allocator's own history names it.
    #[must_use]
    pub fn of_place(memory: Memory, bytes: u64, place: &str) -> Self {
        let (at, function) = place.split_once(' ').unwrap_or((place, ""));
        let split = at.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<u32>().ok()?)));
        match split {
            Some((file, line)) => {
                Holder { file: file.to_owned(), line, ..Holder::named(memory, bytes, function.to_owned()) }
            }
            None => Holder::named(memory, bytes, place.to_owned()),
        }
    }

    /// A row of `held` as a bundle keeps it; `None` where it has no memory or size.
    #[must_use]
    pub fn of_value(row: &Value) -> Option<Self> {
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        let line = row.get("line").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok());
        let memory = text("memory").parse().ok()?;
        Some(Holder {
            count: row.get("count").and_then(Value::as_u64),
            file: text("file"),
            line: line.unwrap_or(0),
            kept_by: row.get("kept_by").and_then(Value::as_str).map(str::to_owned),
            ..Holder::named(memory, row.get("bytes")?.as_u64()?, text("function"))
        })
    }

    /// Whether it is a line of code.
    #[must_use]
    pub fn is_line(&self) -> bool {
        self.line > 0
    }

    /// `dataset.py:88 Cache.put`, or what of it is known.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.line, self.file.as_str()) {
            (0, "") => self.function.clone(),
            (0, file) => format!("{} ({})", self.function, short_path(file)),
            (line, file) => format!("{}:{line} {}", short_path(file), self.function).trim_end().to_owned(),
        }
    }

    /// `dataset.py:88 Cache.put · kept by … · grew 37 MiB/min`; a variable that keeps one of those `above` it in the list too is only named.
    #[must_use]
    pub fn words(&self, above: &[Holder]) -> String {
        let mut words = vec![self.place()];
        let is_known = above.iter().any(|above| above.kept_by == self.kept_by);
        let name = |kept_by: &str| kept_by.split_once(", ").map_or(kept_by, |(name, _)| name).to_owned();
        let keeper =
            self.kept_by.as_deref().map(|kept_by| if is_known { name(kept_by) } else { kept_by.to_owned() });
        let counted =
            if self.is_kept_at_forecast && !is_known { " (counted when the limit was forecast)" } else { "" };
        words.extend(keeper.map(|keeper| format!("kept by {keeper}{counted}")));
        words.extend(self.growth.as_ref().map(Growth::words));
        words.join(" · ")
    }

    /// The size, with a word before an estimate.
    #[must_use]
    pub fn size(&self) -> String {
        let about = if self.is_estimate { "about " } else { "" };
        format!("{about}{}", format_bytes(self.bytes))
    }
}

/// The last part of a path: beside a line and a function it is enough, and the object form has all of it.
fn short_path(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Puts holders in the order of every view.
pub(crate) fn sort(holders: &mut [Holder], failed: Option<Memory>) {
    holders.sort_by_key(|holder| (Some(holder.memory) != failed, std::cmp::Reverse(holder.bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_an_allocators_history_is_split_into_file_line_and_function() {
        let line = Holder::of_place(Memory::Host, 7, "/src/kv.py:57 append");
        assert_eq!((line.file.as_str(), line.line, line.function.as_str()), ("/src/kv.py", 57, "append"));
        let other = Holder::of_place(Memory::Host, 7, "no stack");
        assert_eq!((other.line, other.place().as_str()), (0, "no stack"));
    }

    #[test]
    fn memory_that_failed_comes_first() {
        let gpu: Memory = "cuda:0".parse().unwrap();
        let mut holders = [(Memory::Host, 9), (gpu, 2), (gpu, 5)]
            .map(|(memory, bytes)| Holder::named(memory, bytes, String::new()));
        sort(&mut holders, Some(gpu));
        assert_eq!(holders.each_ref().map(|holder| holder.bytes), [5, 2, 9]);
        sort(&mut holders, None);
        assert_eq!(holders.each_ref().map(|holder| holder.bytes), [9, 5, 2]);
    }

    #[test]
    fn variable_that_was_described_above_is_only_named() {
        let of = |line: u32, kept_by: &str| Holder {
            file: "bus.py".to_owned(),
            line,
            kept_by: Some(kept_by.to_owned()),
            ..Holder::named(Memory::Host, 5, "publish".to_owned())
        };
        let kept_by = "`bus.seen`, a list of 6 events, global of app";
        let held = [of(4, kept_by), of(9, "`log`, a deque of 2 strings"), of(7, kept_by)];
        let words: Vec<String> = (0..3).map(|at| held[at].words(&held[..at])).collect();
        assert_eq!(words[0], format!("bus.py:4 publish · kept by {kept_by}"));
        assert_eq!(words[1], "bus.py:9 publish · kept by `log`, a deque of 2 strings");
        assert_eq!(words[2], "bus.py:7 publish · kept by `bus.seen`");
    }
}
