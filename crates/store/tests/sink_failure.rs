//! A disk that fails: full, gone, in the way. Nothing torn is left behind, nothing flushed is lost, losses are counted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use stormlog_model::SessionStatus;
use stormlog_store::sink::{Sink, SinkConfig, read_manifest};

/// A file system of 256 KiB.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn mount(at: &Path) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=256k", "stormlog-test"]).arg(at);
        let output = command.output().ok()?;
        if !output.status.success() {
            println!("skipped: cannot mount a tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        Some(SmallDisk(at.to_owned()))
    }

    fn fill(&self) {
        let ballast = fs::write(self.0.join("ballast"), vec![0; 1 << 20]);
        assert!(ballast.is_err(), "the disk is full");
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn config(root: &Path) -> SinkConfig {
    SinkConfig { write_rollups: false, ..SinkConfig::new(root) }
}

/// Records of 4 KiB, each with its number.
fn record(number: usize) -> String {
    format!(r#"{{"n": {number}, "pad": "{}"}}"#, "x".repeat(4096))
}

fn numbers(root: &Path) -> Vec<u64> {
    let mut paths = stormlog_store::sink::segment_paths(root);
    paths.sort();
    let lines = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
    let number = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["n"].as_u64().unwrap();
    lines.lines().map(number).collect()
}

#[test]
fn a_full_disk_raises_and_everything_is_written_once_there_is_room() {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(root.path()) else { return };
    let sink_root = root.path().join("sink");
    let sink = Sink::open(SinkConfig { flush_every_events: 2, ..config(&sink_root) }, "h").unwrap();
    sink.append(&record(0), None).unwrap();
    sink.append(&record(1), None).unwrap();
    disk.fill();
    let size = || fs::metadata(sink_root.join("segment-000001.jsonl")).unwrap().len();
    let before = size();
    sink.append(&record(2), None).unwrap();
    let error = sink.append(&record(3), None).unwrap_err();
    assert_eq!(error.to_string(), "[Errno 28] No space left on device");
    assert_eq!(size(), before, "the failed write was cut back");
    let failed = sink.failure_diagnostics();
    assert_eq!((failed.flush_failures, failed.buffered_records, failed.dropped_records), (1, 2, 0));
    assert_eq!(failed.last_flush_error.as_deref(), Some("OSError: [Errno 28] No space left on device"));
    assert_eq!(sink.take_warnings().len(), 1);
    disk.free();
    sink.append(&record(4), None).unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(numbers(&sink_root), [0, 1, 2, 3, 4]);
    assert_eq!(read_manifest(&sink_root).unwrap().segments[0].event_count, 5);
}

#[test]
fn bounded_mode_drops_counts_and_recovers() {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(root.path()) else { return };
    let sink_root = root.path().join("sink");
    let bounded = SinkConfig {
        flush_every_events: 2,
        flush_every_seconds: 100.0,
        max_buffer_bytes: Some(3 * 4200),
        // Long beside what the appends below take on a busy machine.
        failure_backoff_seconds: 1.5,
        failure_backoff_max_seconds: 1.5,
        ..config(&sink_root)
    };
    let sink = Sink::open(bounded, "h").unwrap();
    sink.append(&record(0), None).unwrap();
    sink.append(&record(1), None).unwrap();
    disk.fill();
    for number in 2..10 {
        sink.append(&record(number), None).unwrap();
    }
    let failed = sink.failure_diagnostics();
    assert_eq!((failed.buffered_records, failed.dropped_records), (3, 5), "{failed:?}");
    assert_eq!(failed.flush_failures, 1, "the disk is left alone for a while");
    assert!(failed.buffered_bytes <= 3 * 4200);
    disk.free();
    thread::sleep(Duration::from_millis(1600));
    sink.append(&record(10), None).unwrap();
    assert_eq!(sink.failure_diagnostics().consecutive_flush_failures, 0);
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(numbers(&sink_root), [0, 1, 2, 3, 4, 10]);
}

#[test]
fn closing_on_a_full_disk_counts_what_bounded_mode_gives_up() {
    let root = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(root.path()) else { return };
    let sink_root = root.path().join("sink");
    let bounded = SinkConfig { max_buffer_bytes: Some(1 << 20), ..config(&sink_root) };
    let sink = Sink::open(bounded, "h").unwrap();
    sink.append(&record(0), None).unwrap();
    sink.flush(true).unwrap();
    disk.fill();
    sink.append(&record(1), None).unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    let failed = sink.failure_diagnostics();
    assert_eq!((failed.dropped_records, failed.buffered_records), (1, 0));
    assert_eq!(numbers(&sink_root), [0]);
}

#[test]
fn a_directory_that_is_gone_is_an_error_until_it_is_back() {
    let root = tempfile::tempdir().unwrap();
    let sink_root = root.path().join("sink");
    let sink = Sink::open(SinkConfig { flush_every_events: 1, ..config(&sink_root) }, "h").unwrap();
    sink.start_session(None).unwrap();
    fs::remove_dir_all(&sink_root).unwrap();
    let error = sink.append(&record(0), None).unwrap_err();
    assert!(error.to_string().starts_with("[Errno 2] No such file or directory: '"), "{error}");
    fs::create_dir(&sink_root).unwrap();
    sink.append(&record(1), None).unwrap();
    sink.close(SessionStatus::Completed).unwrap();
    assert_eq!(numbers(&sink_root), [0, 1]);
}

#[test]
fn a_file_in_the_way_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(&path, "").unwrap();
    assert!(Sink::open(config(&path), "h").is_err());
}

#[test]
fn a_segment_that_cannot_be_removed_is_kept_and_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let bounds = SinkConfig {
        flush_every_events: 1,
        rollover_max_events: 1,
        retention_max_files: 1,
        ..config(root.path())
    };
    let sink = Sink::open(bounds, "h").unwrap();
    sink.append(&record(0), None).unwrap();
    // A directory cannot be unlinked.
    let first = root.path().join("segment-000001.jsonl");
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    assert!(sink.append(&record(1), None).is_err());
    fs::remove_dir(&first).unwrap();
    sink.append(&record(2), None).unwrap();
    assert_eq!(numbers(root.path()), [2]);
}
