//! What each layer of a memory explains of the layer around it, and what is left: RSS = heap + files + stacks + allocator slack + unknown; device used
//! = reserved + context + libraries + other processes + unknown. A part that was not read is `None`; what is left is known only where every part was.

use serde::Serialize;
use serde_json::Value;
use stormlog_analyze::Layers;
use stormlog_catalog::cuda_oom::DeviceLayers;
use stormlog_model::memory::Memory;
use stormlog_model::{Record, format_bytes};

/// A memory and its parts, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Residual {
    /// Which memory.
    pub memory: Memory,
    /// All of it: resident bytes of the process, or used bytes of the device.
    pub total_bytes: u64,
    /// The parts, in the order of the sum.
    pub parts: Vec<Part>,
    /// What no part explains; `None` where a part was not read, or where parts are not resident.
    pub unknown_bytes: Option<u64>,
}

/// One part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// `heap`, `files`, `stacks`, `allocator slack`; `reserved`, `context`, `libraries`, `other processes`.
    pub name: String,
    /// `None` where it was not read.
    pub bytes: Option<u64>,
}

impl Residual {
    fn new(memory: Memory, total_bytes: u64, parts: Vec<Part>) -> Self {
        let sum = parts.iter().map(|part| part.bytes).sum::<Option<u64>>();
        let unknown_bytes = sum.and_then(|sum| total_bytes.checked_sub(sum));
        Residual { memory, total_bytes, parts, unknown_bytes }
    }

    /// `RSS 1.2 GiB = heap 1.0 GiB + files 8 MiB + stacks 1 MiB + allocator slack unknown`.
    #[must_use]
    pub fn words(&self) -> String {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), format_bytes);
        let part = |part: &Part| format!("{} {}", part.name, size(part.bytes));
        let mut parts: Vec<String> = self.parts.iter().map(part).collect();
        parts.extend(
            self.unknown_bytes
                .filter(|bytes| *bytes > 0)
                .map(|bytes| format!("unknown {}", format_bytes(bytes))),
        );
        let whole = match self.memory {
            Memory::Host => "RSS".to_owned(),
            device => format!("{device} used"),
        };
        format!("{whole} {} = {}", format_bytes(self.total_bytes), parts.join(" + "))
    }
}

/// By the samples of a process, and what its capture shows of its heap at that moment.
pub(crate) fn of_layers(layers: &Layers) -> Residual {
    let known = layers.parts.iter().filter(|(_, bytes)| *bytes != Some(0));
    let parts = known.map(|(name, bytes)| Part { name: (*name).to_owned(), bytes: *bytes }).collect();
    Residual::new(layers.memory, layers.total_bytes, parts)
}

/// The host's, by the last look at the memory map that a bundle keeps. The allocator's slack is what is mapped for allocations and not handed out.
pub(crate) fn of_map(evidence: &Record) -> Option<Residual> {
    let rows = evidence.get("memory_map").and_then(Value::as_array)?;
    let resident = |name: &str| {
        let row = rows.iter().find(|row| row.get("name").and_then(Value::as_str) == Some(name))?;
        row.get("rss_bytes").and_then(Value::as_u64)
    };
    let kinds = ["[heap]", "[anon]", "[stack]", "[shared]", "[devices]", "[files]"].map(resident);
    let total = kinds.iter().flatten().sum::<u64>();
    let [heap, anonymous, stacks, shared, devices, files] = kinds;
    (total > 0).then(|| {
        let anonymous = heap.zip(anonymous).map(|(heap, anonymous)| heap + anonymous).or(anonymous);
        let mut parts = vec![
            Part { name: "heap and other anonymous memory".to_owned(), bytes: anonymous },
            Part { name: "files".to_owned(), bytes: files },
            Part { name: "stacks".to_owned(), bytes: stacks },
            Part { name: "shared memory".to_owned(), bytes: Some(shared.unwrap_or(0)) },
        ];
        parts.extend(
            devices
                .filter(|bytes| *bytes > 0)
                .map(|bytes| Part { name: "devices".to_owned(), bytes: Some(bytes) }),
        );
        parts.retain(|part| part.bytes != Some(0));
        Residual::new(Memory::Host, total, parts)
    })
}

/// Splits anonymous memory by what a capture shows to be alive: the rest is slack of the allocator and what was not recorded. Only where the heap is
/// smaller: blocks that were never touched are alive and not resident.
pub(crate) fn split_heap(residual: &mut Residual, live_bytes: u64) {
    let Some(at) = residual.parts.iter().position(|part| part.name.starts_with("heap and")) else { return };
    let Some(slack) = residual.parts[at].bytes.and_then(|all| all.checked_sub(live_bytes)) else { return };
    residual.parts[at] = Part { name: "heap".to_owned(), bytes: Some(live_bytes) };
    residual
        .parts
        .insert(at + 1, Part { name: "allocator slack and unrecorded".to_owned(), bytes: Some(slack) });
}

/// A device's, as the program could find it out when a request failed.
pub(crate) fn of_device(memory: Memory, layers: &DeviceLayers) -> Option<Residual> {
    let total = layers.used_bytes?;
    let mut parts = vec![Part { name: "reserved".to_owned(), bytes: layers.reserved_bytes }];
    match layers.parts.is_empty() {
        true => parts.push(Part { name: "context and libraries".to_owned(), bytes: layers.hidden_bytes }),
        false => parts.extend(
            layers
                .parts
                .iter()
                .map(|(name, bytes)| Part { name: name.replace('_', " "), bytes: Some(*bytes) }),
        ),
    }
    parts.push(Part { name: "other processes".to_owned(), bytes: layers.other_processes_bytes });
    parts.retain(|part| part.bytes != Some(0));
    Some(Residual::new(memory, total, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residual_is_unknown_if_a_part_is_unknown() {
        let layers = DeviceLayers {
            used_bytes: Some(100),
            reserved_bytes: Some(60),
            hidden_bytes: Some(10),
            parts: vec![("context".to_owned(), 10)],
            other_processes_bytes: None,
        };
        let memory: Memory = "cuda:0".parse().unwrap();
        assert_eq!(of_device(memory, &layers).unwrap().unknown_bytes, None);
        let known = DeviceLayers { other_processes_bytes: Some(5), ..layers };
        let residual = of_device(memory, &known).unwrap();
        assert_eq!(residual.unknown_bytes, Some(25));
        assert_eq!(
            residual.words(),
            "cuda:0 used 100 B = reserved 60 B + context 10 B + other processes 5 B + unknown 25 B"
        );
    }

    #[test]
    fn heap_is_split_from_the_allocators_slack_where_it_is_resident() {
        let map = serde_json::json!({"memory_map": [
            {"name": "[heap]", "rss_bytes": 10}, {"name": "[anon]", "rss_bytes": 80}, {"name": "[stack]", "rss_bytes": 2},
            {"name": "[files]", "rss_bytes": 8}]});
        let Value::Object(record) = map else { panic!("an object") };
        let mut residual = of_map(&record).unwrap();
        assert_eq!((residual.total_bytes, residual.unknown_bytes), (100, Some(0)));
        split_heap(&mut residual, 500);
        assert_eq!(residual.parts[0].bytes, Some(90), "blocks that were never touched");
        split_heap(&mut residual, 70);
        let parts: Vec<u64> = residual.parts.iter().filter_map(|part| part.bytes).collect();
        assert_eq!((parts, residual.unknown_bytes), (vec![70, 20, 8, 2], Some(0)));
    }
}
