//! Real captures of real Python programs.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "in a test a panic is the report, and not every test uses all of it"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine;
use std::io::Read;

/// A program's capture, and the directory it is in.
pub struct Recorded {
    pub folder: tempfile::TempDir,
    pub capture: PathBuf,
    pub output: Output,
}

/// The interpreter itself: a launcher in front of it would be recorded as well.
fn python() -> String {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

/// Runs `program` under the recording library.
pub fn record(program: &str, options: &str) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    record_in(folder, program, options)
}

pub fn record_in(folder: tempfile::TempDir, program: &str, options: &str) -> Recorded {
    let script = folder.path().join("program.py");
    std::fs::write(&script, program).unwrap();
    let capture = folder.path().join("heap.bin");
    let library = stormlog_hook_image::install().unwrap();
    let output = Command::new(python())
        .args(["-I", "-S"])
        .arg(&script)
        .env("LD_PRELOAD", library)
        .env("STORMLOG_HEAP", format!("path={}{options}", capture.display()))
        .output()
        .unwrap();
    Recorded { folder, capture, output }
}

/// The data inside a page.
pub fn unpack(page: &str) -> serde_json::Value {
    let start = page.find("<script id=\"data\"").unwrap();
    let body = &page[start..];
    let body = &body[body.find('>').unwrap() + 1..body.find("</script>").unwrap()];
    let bytes = base64::engine::general_purpose::STANDARD.decode(body.trim()).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub fn sum(list: &serde_json::Value) -> u64 {
    list.as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).sum()
}

pub fn chosen(path: &Path) -> stormlog_heap_report::Chosen {
    stormlog_heap_report::find(path, None).unwrap()
}
