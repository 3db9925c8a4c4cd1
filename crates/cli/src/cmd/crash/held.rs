//! Which lines held the memory when a program died, for `oom show`: as its bundle keeps it, or from the capture of the joined process, which
//! is there after SIGKILL too.

use serde_json::Value;
use stormlog_catalog::run::Process;
use stormlog_heap_report::{AT_FAILURE, HeapDigest, Holder};
use stormlog_model::memory::Memory;
use stormlog_model::{Record, format_bytes};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::Bundle;

/// What a capture says of a death; empty where there is none.
#[derive(Default)]
pub(crate) struct Held {
    heap: Record,
}

impl Held {
    /// Of the bundle's process.
    pub(crate) fn of(bundle: &Bundle) -> Self {
        let kept = bundle.metadata.get("custom_metadata").and_then(|metadata| metadata.get("heap"));
        let kept = kept.and_then(Value::as_object).filter(|heap| heap.contains_key("held"));
        Held { heap: kept.cloned().or_else(|| from_capture(bundle)).unwrap_or_default() }
    }

    /// `held` for scripts: memory, bytes, file, line and function, the largest first.
    pub(crate) fn rows(&self) -> Vec<Value> {
        self.heap.get("held").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// Whether this is one of the lines, as a bundle writes them.
    pub(crate) fn has(&self, place: &str) -> bool {
        let place = place.trim();
        let is_it = |holder: Holder| match holder.memory {
            Memory::Host => holder.words() == place,
            device => place.strip_prefix(&format!("{device} ")) == Some(holder.words().as_str()),
        };
        self.rows().iter().filter_map(holder).any(is_it)
    }

    /// Whether a line of a device is among them.
    pub(crate) fn has_devices(&self) -> bool {
        self.rows().iter().any(|row| text(row, "memory") != "host")
    }

    /// The last requests that got no memory, a sentence each; without those of devices where the page has them already.
    pub(crate) fn failed(&self, without_devices: bool) -> Vec<String> {
        let of_devices =
            self.devices().filter(|_| !without_devices).filter_map(|row| row.get("failed_request"));
        let requests = of_devices.chain(self.heap.get("failed_request"));
        requests.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The lines of a page: those of the memory whose request failed first, then the largest.
    pub(crate) fn lines(&self) -> Vec<String> {
        let failed = self.heap.get("failed_memory").and_then(Value::as_str);
        let mut holders: Vec<Holder> = self.rows().iter().filter_map(holder).collect();
        holders.sort_by_key(|holder| Some(holder.memory.to_string().as_str()) != failed);
        let is_sampled = self.heap.get("sample_bytes").is_some_and(Value::is_u64);
        let about = |memory: Memory| About {
            is_at_failure: self.is_at_failure(&memory.to_string()),
            is_sampled: is_sampled && memory == Memory::Host,
        };
        lines(&holders, self.has_devices(), about)
    }

    fn is_at_failure(&self, memory: &str) -> bool {
        let device = self.devices().find(|row| text(row, "memory") == memory);
        match device {
            Some(device) => device.get("is_held_at_failure").and_then(Value::as_bool).unwrap_or(false),
            None => self.heap.get("held_when").and_then(Value::as_str) == Some(AT_FAILURE),
        }
    }

    fn devices(&self) -> impl Iterator<Item = &Value> {
        self.heap.get("devices").and_then(Value::as_array).into_iter().flatten()
    }
}

/// A bundle that no supervisor lived to complete, one that the program wrote itself, or an older one.
fn from_capture(bundle: &Bundle) -> Option<Record> {
    let process = Process::of_part(&bundle.path)?;
    let is_failure = matches!(bundle.cause, Cause::MemoryError | Cause::OomException);
    let digest = process.captures.iter().find_map(|capture| HeapDigest::read(capture, is_failure))?;
    match digest.to_json() {
        Value::Object(record) => Some(record),
        _ => None,
    }
}

fn holder(row: &Value) -> Option<Holder> {
    Some(Holder {
        memory: text(row, "memory").parse().ok()?,
        bytes: row.get("bytes")?.as_u64()?,
        file: text(row, "file").to_owned(),
        line: row.get("line").and_then(Value::as_u64).and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        function: text(row, "function").to_owned(),
    })
}

/// What is to be known of all lines of a memory.
pub(crate) struct About {
    /// They are of the last failed request, not of the end.
    pub(crate) is_at_failure: bool,
    /// They are estimates.
    pub(crate) is_sampled: bool,
}

/// A line for each holder, with the memory it holds where there may be several; when that was, once for each memory.
pub(crate) fn lines(holders: &[Holder], has_devices: bool, about: impl Fn(Memory) -> About) -> Vec<String> {
    let mut last = None;
    let line = |holder: &Holder| {
        let is_first = last.replace(holder.memory) != Some(holder.memory);
        let About { is_at_failure, is_sampled } = about(holder.memory);
        let when = if is_first && is_at_failure { AT_FAILURE } else { "" };
        let about = if is_sampled { "about " } else { "" };
        let memory = if has_devices { format!("{:<8} ", holder.memory.to_string()) } else { String::new() };
        let (bytes, place) = (format_bytes(holder.bytes), holder.words());
        format!("{about}{bytes:>10}  {memory}{place}   {when}").trim_end().to_owned()
    };
    holders.iter().map(line).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or("")
}
