//! The memory of a process at a moment that was requested: `snapshot.json`, its format and the answer in a few lines.
//!
//! One format for what a process reports of itself (components by its tensors, the allocator of each device) and for what is seen from outside; the lines
//! that hold the memory come from the heap capture of the process where there is one. Written by the recorded program: nothing in it is trusted beyond its
//! shape. Must never print.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stormlog_catalog::run::layout::MEMORY_SNAPSHOT_FILE;
use stormlog_files::Directory;
use stormlog_model::format_bytes;

use crate::digest::HeapDigest;
use crate::find::find;

/// The value of `format`.
pub const FORMAT: &str = "stormlog.snapshot";
/// The version that is written.
pub const VERSION: u32 = 1;
/// The longest file that is read.
const MOST_BYTES: u64 = 4 << 20;
/// Rows shown of each kind.
const ROWS: usize = 8;

/// The memory of a process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySnapshot {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub schema_version: u32,
    /// Of the request.
    pub id: String,
    /// The process.
    pub pid: u32,
    /// What the user would call it.
    pub program: Option<String>,
    /// Nanoseconds since 1970.
    pub taken_at_ns: i64,
    /// Which command or call asked for it.
    pub asked_by: String,
    /// Whether the process looked at itself; from outside its tensors are not seen.
    pub is_by_process: bool,
    /// The last training step that had ended.
    pub step: Option<u64>,
    /// The step that was requested.
    pub at_step: Option<u64>,
    /// Totals: the host first, then each device.
    pub memories: Vec<MemoryTotal>,
    /// What the memory is for, the largest first.
    pub components: Vec<Component>,
    /// Lines that hold memory, the largest first; `None` where no heap was recorded.
    pub holders: Option<Vec<HeldLine>>,
    /// The capture that the lines are from.
    pub capture: Option<PathBuf>,
    /// Mean bytes between the host's allocations that were recorded: its lines are estimates.
    pub sample_bytes: Option<u64>,
    /// The snapshot of PyTorch's allocator, beside this file.
    pub allocator_snapshot: Option<String>,
    /// How long the process looked at itself.
    pub seconds: Option<f64>,
    /// What is missing, a sentence each.
    pub notes: Vec<String>,
}

/// One memory of the process: `host`, `cuda:0`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryTotal {
    /// Which.
    pub memory: String,
    /// Resident on the host; allocated by the framework on a device.
    pub bytes: u64,
    /// What the framework's allocator holds from the device.
    pub reserved_bytes: Option<u64>,
    /// What of that is free.
    pub free_in_cache_bytes: Option<u64>,
}

/// What memory is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Component {
    /// `weights`, `kv_cache`, `activations`, `workspaces`, `other`, or the program's own word.
    pub component: String,
    /// Of which memory.
    pub memory: String,
    /// How much.
    pub bytes: u64,
    /// In how many tensors or blocks.
    pub count: u64,
}

/// A line that holds memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldLine {
    /// Of which memory.
    pub memory: String,
    /// How much.
    pub bytes: u64,
    /// File.
    pub file: String,
    /// Line; 0 where it is unknown.
    pub line: u32,
    /// Function.
    pub function: String,
}

impl MemorySnapshot {
    /// The snapshot in a directory; `None` where there is none of this format.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        let path = directory.join(MEMORY_SNAPSHOT_FILE);
        let is_file = std::fs::symlink_metadata(&path).is_ok_and(|there| there.is_file());
        let file = is_file.then(|| stormlog_files::open_regular(&path).ok()).flatten()?;
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, MOST_BYTES), &mut text).ok()?;
        Self::parse(&text)
    }

    /// The text of a file.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let found: Self = serde_json::from_slice(text).ok()?;
        (found.format == FORMAT && found.schema_version == VERSION).then_some(found)
    }

    /// Writes it into a directory, whole or not at all.
    pub fn write(&self, directory: &Directory) -> std::io::Result<()> {
        directory.replace(MEMORY_SNAPSHOT_FILE, &serde_json::to_vec_pretty(self)?)
    }

    /// Adds the lines that hold the memory now, by the capture of the process at `path`: a capture, or the directory of its run.
    pub fn add_heap(&mut self, path: &Path) {
        let chosen = match path.is_dir() {
            true => find(path, Some(self.pid)).ok().map(|chosen| chosen.path),
            false => Some(path.to_owned()),
        };
        let Some(digest) = chosen.as_deref().and_then(|path| HeapDigest::read(path, false)) else { return };
        let line = |holder: &crate::Holder| HeldLine {
            memory: holder.memory.to_string(),
            bytes: holder.bytes,
            file: holder.file.clone(),
            line: holder.line,
            function: holder.function.clone(),
        };
        let mut holders: Vec<HeldLine> = digest.holders.iter().map(line).collect();
        // What an allocator's own history knows stays where the capture knows nothing of its memory.
        let known = self.holders.take().unwrap_or_default();
        let others = known.into_iter().filter(|row| !holders.iter().any(|one| one.memory == row.memory));
        let others: Vec<HeldLine> = others.collect();
        holders.extend(others);
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        self.holders = Some(holders);
        self.sample_bytes = digest.sample_bytes;
        self.capture = chosen;
    }

    /// All memories together: resident on the host, and held from each device.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let held = self.memories.iter().map(|memory| memory.reserved_bytes.unwrap_or(memory.bytes));
        held.fold(0, u64::saturating_add)
    }

    /// What holds the memory, for a terminal: the answer first, then its parts.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let program = self.program.as_deref().unwrap_or("process");
        let step = self.step.map(|step| format!(", after step {step}")).unwrap_or_default();
        let asked = self.at_step.filter(|asked| self.step != Some(*asked));
        let asked = asked.map(|asked| format!(" (step {asked} was requested)")).unwrap_or_default();
        let view = if self.is_by_process { "" } else { ", seen from outside" };
        let mut lines = vec![format!("Memory of {program} (pid {}){step}{asked}{view}:", self.pid)];
        lines.extend(self.memories.iter().map(MemoryTotal::words));
        if !self.components.is_empty() {
            lines.push("By component:".to_owned());
        }
        for part in self.components.iter().take(ROWS) {
            let unit = if part.count == 1 { "tensor" } else { "tensors" };
            let count = if part.count == 0 { String::new() } else { format!("  {} {unit}", part.count) };
            let size = format_bytes(part.bytes);
            lines.push(
                format!("  {:<8} {size:>11}  {:<16}{count}", part.memory, part.component)
                    .trim_end()
                    .to_owned(),
            );
        }
        match self.holders.as_deref() {
            None | Some([]) => {}
            Some(holders) => {
                let is_sampled =
                    self.sample_bytes.is_some() && holders.iter().any(|one| one.memory == "host");
                let about = if is_sampled { " (the host's by a sample)" } else { "" };
                lines.push(format!("Held by line{about}:"));
                lines.extend(holders.iter().take(ROWS).map(HeldLine::words));
            }
        }
        lines.extend(self.notes.iter().map(|note| format!("Note: {note}")));
        lines
    }
}

impl MemoryTotal {
    fn words(&self) -> String {
        let mut text = format!("  {:<8} {:>11}  ", self.memory, format_bytes(self.bytes));
        text.push_str(if self.memory == "host" { "resident" } else { "allocated" });
        if let Some(reserved) = self.reserved_bytes {
            let _ = write!(text, ", {} reserved", format_bytes(reserved));
        }
        if let Some(free) = self.free_in_cache_bytes {
            let _ = write!(text, ", {} free in the cache", format_bytes(free));
        }
        text
    }
}

impl HeldLine {
    fn words(&self) -> String {
        let place = match (self.line, self.file.rsplit('/').next().unwrap_or_default()) {
            (0, "") => self.function.clone(),
            (0, file) => format!("{} ({file})", self.function),
            (line, file) => format!("{file}:{line} {}", self.function),
        };
        format!("  {:<8} {:>11}  {}", self.memory, format_bytes(self.bytes), place.trim_end())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn server() -> MemorySnapshot {
        MemorySnapshot {
            format: FORMAT.to_owned(),
            schema_version: VERSION,
            pid: 7,
            program: Some("server.py".to_owned()),
            is_by_process: true,
            step: Some(101),
            at_step: Some(100),
            memories: vec![
                MemoryTotal { memory: "host".into(), bytes: 3 << 30, ..MemoryTotal::default() },
                MemoryTotal {
                    memory: "cuda:0".into(),
                    bytes: 5 << 30,
                    reserved_bytes: Some(6 << 30),
                    free_in_cache_bytes: Some(1 << 30),
                },
            ],
            components: vec![Component {
                component: "kv_cache".into(),
                memory: "cuda:0".into(),
                bytes: 4 << 30,
                count: 48,
            }],
            holders: Some(vec![HeldLine {
                memory: "cuda:0".into(),
                bytes: 4 << 30,
                file: "/srv/engine.py".into(),
                line: 31,
                function: "allocate".into(),
            }]),
            ..MemorySnapshot::default()
        }
    }

    #[test]
    fn answer_names_memories_components_and_lines() {
        let snapshot = server();
        assert_eq!(snapshot.total_bytes(), 9 << 30);
        assert_eq!(
            snapshot.lines(),
            [
                "Memory of server.py (pid 7), after step 101 (step 100 was requested):",
                "  host        3.00 GiB  resident",
                "  cuda:0      5.00 GiB  allocated, 6.00 GiB reserved, 1.00 GiB free in the cache",
                "By component:",
                "  cuda:0      4.00 GiB  kv_cache          48 tensors",
                "Held by line:",
                "  cuda:0      4.00 GiB  engine.py:31 allocate",
            ]
        );
    }

    #[test]
    fn file_is_read_back_and_one_of_another_format_is_not() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        server().write(&directory).unwrap();
        assert_eq!(MemorySnapshot::read(place.path()), Some(server()));
        for other in [&b"{}"[..], b"[1]", b"{", br#"{"format": "stormlog.snapshot", "schema_version": 2}"#] {
            assert_eq!(MemorySnapshot::parse(other), None);
        }
    }
}
