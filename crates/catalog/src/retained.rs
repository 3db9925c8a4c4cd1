//! What keeps the memory of a Python process: `retained-PID.json`, written by the recording library inside the process (`hook/src/retention`).
//!
//! Each row is one holder: a container or object that a root (a local of a running function, a global, a class, a closure) reaches, with the
//! addresses of some of the blocks below it. The addresses are what joins a row with the lines of a heap capture (`heap-report`). Written by the
//! recorded program, so nothing in it is trusted: sizes, numbers and texts are bounded here.

use std::path::Path;

use serde_json::{Map, Value, json};
use stormlog_model::scrub;
use stormlog_store::json::read_value;

/// The value of `format` in the file.
pub const FORMAT: &str = "stormlog-retained";
/// Version of the file that is read here.
pub const VERSION: u64 = 1;

/// Rows of a file, steps of a path and blocks of a row that are read at most.
const MOST_ROWS: usize = 256;
const MOST_STEPS: usize = 64;
const MOST_BLOCKS: usize = 8192;
/// Characters of a text that are read at most.
const LONGEST_TEXT: usize = 1000;

/// A process's look at what keeps its memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Retention {
    /// The process.
    pub pid: Option<u32>,
    /// When it looked, nanoseconds since 1970.
    pub taken_at_ns: Option<i64>,
    /// Why it looked.
    pub reason: Reason,
    /// How long that took, in microseconds.
    pub elapsed_us: Option<u64>,
    /// Whether it could follow every path to its end within the time and memory allowed.
    pub is_complete: bool,
    /// What it could not do, a sentence.
    pub note: Option<String>,
    /// Holders, the one with the most bytes first.
    pub held: Vec<Retained>,
}

/// Why a process looked at what keeps its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// PyTorch's allocator ran out of device memory.
    CudaOom,
    /// An exception about memory was not caught.
    Exception,
    /// A limit comes nearer.
    Forecast,
    /// The program ended after it grew.
    Exit,
    /// A person asked (`stormlog why`), or the file does not tell.
    #[default]
    Request,
}

impl Reason {
    /// As the file has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::CudaOom => "cuda_oom",
            Reason::Exception => "exception",
            Reason::Forecast => "forecast",
            Reason::Exit => "exit",
            Reason::Request => "request",
        }
    }

    /// When it was, for a sentence.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Reason::CudaOom => "when PyTorch ran out of device memory",
            Reason::Exception => "when an allocation failed",
            Reason::Forecast => "when reaching a limit was forecast",
            Reason::Exit => "at its end",
            Reason::Request => "while it runs",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        let all = [Reason::CudaOom, Reason::Exception, Reason::Forecast, Reason::Exit, Reason::Request];
        all.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// One holder of memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Retained {
    /// `host`, `cuda:0`, …
    pub memory: String,
    /// The line that allocated most of it, where a capture knows it.
    pub file: Option<String>,
    /// See [`file`](Self::file).
    pub line: Option<u64>,
    /// See [`file`](Self::file).
    pub function: Option<String>,
    /// Bytes of the objects that it keeps, estimated from a sample.
    pub bytes: u64,
    /// Their number, estimated from a sample.
    pub objects: u64,
    /// One line: "`losses`, a list of 812 tensors, local of train() at train.py:31".
    pub kept_by: String,
    /// From the root to the objects, a step each.
    pub path: Vec<String>,
    /// Its tensors keep autograd graphs; where their memory was found, it is in another row.
    pub keeps_graph: bool,
    /// Sampled addresses of those objects' memory.
    pub blocks: Vec<HeldBlock>,
    /// Addresses of blocks that it keeps and that the sampled capture has.
    pub recorded: Vec<u64>,
}

/// A sampled address and the bytes that it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBlock {
    /// An address in the block.
    pub address: u64,
    /// Bytes that the sample stands for.
    pub bytes: u64,
}

impl Retained {
    /// The object of `--json`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({
            "memory": self.memory, "file": self.file, "line": self.line, "function": self.function,
            "bytes": self.bytes, "objects": self.objects, "kept_by": self.kept_by, "path": self.path,
            "keeps_graph": self.keeps_graph,
        })
    }
}

/// The report in a file; `None` where it is missing, damaged or of another version.
#[must_use]
pub fn read(path: &Path) -> Option<Retention> {
    let Ok(Value::Object(record)) = read_value(path) else { return None };
    of_record(&record)
}

fn of_record(record: &Map<String, Value>) -> Option<Retention> {
    let is_ours = record.get("format").and_then(Value::as_str) == Some(FORMAT)
        && record.get("version").and_then(Value::as_u64) == Some(VERSION);
    let rows = record.get("held").and_then(Value::as_array).filter(|_| is_ours)?;
    let mut held: Vec<Retained> =
        rows.iter().take(MOST_ROWS).filter_map(|row| row_of(row.as_object()?)).collect();
    held.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    Some(Retention {
        pid: record.get("pid").and_then(Value::as_u64).and_then(|pid| pid.try_into().ok()),
        taken_at_ns: record.get("taken_at_ns").and_then(Value::as_i64),
        reason: record.get("reason").and_then(Value::as_str).and_then(Reason::of_word).unwrap_or_default(),
        elapsed_us: record.get("elapsed_us").and_then(Value::as_u64),
        is_complete: record.get("complete").and_then(Value::as_bool).unwrap_or(false),
        note: text(record, "note").filter(|note| !note.is_empty()),
        held,
    })
}

fn row_of(row: &Map<String, Value>) -> Option<Retained> {
    let path = row.get("path").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let blocks = row.get("blocks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let recorded = row.get("recorded").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let block = |value: &Value| {
        let pair = value.as_array()?;
        Some(HeldBlock { address: pair.first()?.as_u64()?, bytes: pair.get(1)?.as_u64()? })
    };
    Some(Retained {
        memory: text(row, "memory").unwrap_or_else(|| "host".to_owned()),
        file: text(row, "file"),
        line: row.get("line").and_then(Value::as_u64),
        function: text(row, "function"),
        bytes: row.get("bytes")?.as_u64()?,
        objects: row.get("objects").and_then(Value::as_u64).unwrap_or(0),
        kept_by: text(row, "kept_by")?,
        path: path.iter().take(MOST_STEPS).filter_map(|step| step.as_str().map(bounded)).collect(),
        keeps_graph: row.get("keeps_graph").and_then(Value::as_bool).unwrap_or(false),
        blocks: blocks.iter().take(MOST_BLOCKS).filter_map(block).collect(),
        recorded: recorded.iter().take(MOST_BLOCKS).filter_map(Value::as_u64).collect(),
    })
}

fn text(record: &Map<String, Value>, key: &str) -> Option<String> {
    record.get(key).and_then(Value::as_str).map(bounded)
}

/// A text without secrets, no longer than a person reads.
fn bounded(text: &str) -> String {
    let cut = text.char_indices().nth(LONGEST_TEXT).map_or(text.len(), |(at, _)| at);
    scrub::text(&text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"format": "stormlog-retained", "version": 1, "pid": 7, "taken_at_ns": 5, "reason": "exit", "elapsed_us": 9,
        "complete": true, "note": null, "held": [
        {"memory": "host", "bytes": 10, "objects": 1, "kept_by": "`small`, global of app", "path": ["app.small"], "blocks": [[4096, 10]]},
        {"memory": "host", "bytes": 90, "objects": 2, "kept_by": "`keep`, a list of 2 bytearrays", "path": [], "blocks": [[1, 2], [3]]}]}"#;

    fn read_text(text: &[u8]) -> Option<Retention> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("retained-7.json");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn holders_read_back_with_the_largest_first() {
        let report = read_text(WHOLE.as_bytes()).unwrap();
        assert_eq!((report.pid, report.reason, report.is_complete), (Some(7), Reason::Exit, true));
        assert_eq!(report.held[0].kept_by, "`keep`, a list of 2 bytearrays");
        assert_eq!(report.held[0].blocks, [HeldBlock { address: 1, bytes: 2 }], "half a pair is left out");
        assert_eq!(report.held[1].path, ["app.small"]);
    }

    #[test]
    fn another_format_or_version_is_not_read() {
        assert_eq!(read_text(WHOLE.replace("\"version\": 1", "\"version\": 2").as_bytes()), None);
        assert_eq!(read_text(WHOLE.replace("stormlog-", "other-").as_bytes()), None);
    }

    #[test]
    fn damaged_files_and_texts_of_any_length_are_bounded() {
        let bytes = WHOLE.as_bytes();
        let mut seed = 1_u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut copy = bytes.to_vec();
            let at = (seed >> 33) as usize % copy.len();
            copy[at] = (seed >> 20) as u8;
            if seed >> 60 == 3 {
                copy.truncate(at);
            }
            if let Ok(Value::Object(record)) = serde_json::from_slice(&copy) {
                of_record(&record);
            }
        }
        let long = WHOLE.replace("`small`, global of app", &"é".repeat(100_000));
        assert_eq!(read_text(long.as_bytes()).unwrap().held[1].kept_by.chars().count(), LONGEST_TEXT);
        let row = r#"{"bytes": 1, "kept_by": "x"}"#;
        let many = format!(
            r#"{{"format": "stormlog-retained", "version": 1, "held": [{}]}}"#,
            vec![row; MOST_ROWS + 9].join(",")
        );
        assert_eq!(read_text(many.as_bytes()).unwrap().held.len(), MOST_ROWS);
    }
}
