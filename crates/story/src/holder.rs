//! A line of the program that holds memory: how much of which memory, what keeps it, since when and how fast it grows.
//!
//! The order of holders is decided here, for every view: those of the memory whose request failed first, then the largest.

use serde::Serialize;
use serde_json::Value;
use stormlog_heap_report as heap;
use stormlog_model::format_bytes;
use stormlog_model::format_rate;
use stormlog_model::memory::Memory;

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
    /// How it grew, where it did.
    pub growth: Option<Growth>,
    /// The bytes are an estimate.
    pub is_estimate: bool,
}

/// How a line grew.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Growth {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Since when, nanoseconds since 1970; `None` where only the pace is known.
    pub since_ns: Option<u64>,
}

impl From<&heap::Holder> for Holder {
    fn from(found: &heap::Holder) -> Self {
        Holder {
            memory: found.memory,
            bytes: found.bytes,
            count: None,
            file: found.file.clone(),
            line: found.line,
            function: found.function.clone(),
            kept_by: None,
            growth: None,
            is_estimate: false,
        }
    }
}

impl Holder {
    /// A row of `held` as a bundle keeps it; `None` where it has no memory or size.
    #[must_use]
    pub fn of_value(row: &Value) -> Option<Self> {
        let text = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        Some(Holder {
            memory: text("memory").parse().ok()?,
            bytes: row.get("bytes")?.as_u64()?,
            count: row.get("count").and_then(Value::as_u64),
            file: text("file"),
            line: row.get("line").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            function: text("function"),
            kept_by: row.get("kept_by").and_then(Value::as_str).map(str::to_owned),
            growth: None,
            is_estimate: row.get("is_estimate").and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// `dataset.py:88 Cache.put`, or what of it is known.
    #[must_use]
    pub fn place(&self) -> String {
        let holder = heap::Holder {
            memory: self.memory,
            bytes: self.bytes,
            file: self.file.clone(),
            line: self.line,
            function: self.function.clone(),
        };
        holder.words()
    }

    /// `dataset.py:88 Cache.put · kept by … · +37 MiB/min`.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = vec![self.place()];
        words.extend(self.kept_by.as_ref().map(|kept_by| format!("kept by {kept_by}")));
        words.extend(self.growth.map(|growth| format!("grew {}", format_rate(growth.bytes_per_second))));
        words.join(" · ")
    }

    /// The size, with a word before an estimate.
    #[must_use]
    pub fn size(&self) -> String {
        let about = if self.is_estimate { "about " } else { "" };
        format!("{about}{}", format_bytes(self.bytes))
    }
}

/// Puts holders in the order of every view.
pub(crate) fn sort(holders: &mut [Holder], failed: Option<Memory>) {
    holders.sort_by_key(|holder| (Some(holder.memory) != failed, std::cmp::Reverse(holder.bytes)));
}
