//! What Python processes reported before they ended: `exceptions/PID-N.json`, written by our `sitecustomize`.
//!
//! Written by the recorded program, so nothing in it is trusted beyond its shape.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::Record;
use stormlog_postmortem::classify::{Classification, ExceptionFacts, classify};
use stormlog_postmortem::verdict::{Ending, ReportedException};
use stormlog_store::json::read_value;

/// An exception a process died of, or a thread of it.
#[derive(Debug, Clone)]
pub struct Reported {
    /// The class.
    pub type_name: String,
    /// Its module.
    pub module: String,
    /// Its base classes, with their modules.
    pub bases: Vec<String>,
    /// The text, without secrets.
    pub message: String,
    /// The system's error number.
    pub errno: Option<i32>,
    /// What it was raised from, or while handling, outermost first.
    pub raised_from: Vec<Reported>,
    /// The thread that it ended.
    pub thread: Option<String>,
    /// Innermost last: file, line, function.
    pub frames: Vec<(String, u64, String)>,
}

impl Reported {
    fn meaning(&self) -> Classification {
        let bases: Vec<&str> = self.bases.iter().map(String::as_str).collect();
        classify(&ExceptionFacts {
            type_name: &self.type_name,
            module: &self.module,
            bases: &bases,
            message: &self.message,
            errno: self.errno,
        })
    }

    /// With its module, unless that is one that every program has.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.module.as_str() {
            "" | "builtins" | "__main__" => self.type_name.clone(),
            module => format!("{module}.{}", self.type_name),
        }
    }

    /// One in another thread does not end the program.
    #[must_use]
    pub fn is_in_main_thread(&self) -> bool {
        self.thread.as_deref() == Some("MainThread")
    }
}

/// The number of last reports that are searched for the one that ended the program.
const MOST_REPORTS: usize = 64;

/// The exception that `pid` ended with, as far as it reported one, and what it means.
#[must_use]
pub fn understood(directory: &Path, pid: u32) -> Option<(Reported, Classification)> {
    let reported = last_of(directory, pid)?;
    let meaning = reported.meaning();
    // An error raised because memory ran out means that memory ran out.
    let meaning = match meaning.is_oom {
        true => meaning,
        false => reported.raised_from.iter().map(Reported::meaning).find(|one| one.is_oom).unwrap_or(meaning),
    };
    Some((reported, meaning))
}

/// As a fact for a verdict.
#[must_use]
pub fn fact((reported, meaning): &(Reported, Classification), ending: Ending) -> ReportedException {
    ReportedException {
        type_name: reported.full_name(),
        message: reported.message.clone(),
        cause: meaning.cause(),
        // One that ended only a thread explains nothing that comes later.
        is_fatal: reported.is_in_main_thread() && ending != Ending::Exited(0),
    }
}

/// The last one of the main thread: that ends the program, and threads may fail after it while Python waits for them. Else the last
/// one of any thread.
#[must_use]
pub fn last_of(directory: &Path, pid: u32) -> Option<Reported> {
    let prefix = format!("{pid}-");
    let number = |path: &Path| -> Option<u64> {
        path.file_name()?.to_str()?.strip_prefix(&prefix)?.strip_suffix(".json")?.parse().ok()
    };
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let mut paths: Vec<(u64, PathBuf)> =
        entries.filter_map(|entry| Some((number(&entry.path())?, entry.path()))).collect();
    paths.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    let reports: Vec<Reported> = paths.iter().take(MOST_REPORTS).filter_map(|(_, path)| read(path)).collect();
    reports.iter().find(|report| report.is_in_main_thread()).or(reports.first()).cloned()
}

/// Reports of all processes of a run take no more than this, in number and in bytes.
const MOST_FILES: usize = 512;
const MOST_BYTES: u64 = 8 << 20;

/// Removes the oldest reports of processes that have ended, where there are too many. What they say of a death is in its bundle by then.
pub fn bound(directory: &Path, is_watched: impl Fn(u32) -> bool) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut reports: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    let mut bytes: u64 = reports.iter().map(|(_, length, _)| length).sum();
    let mut count = reports.len();
    reports.sort();
    let pid = |path: &Path| path.file_name()?.to_str()?.split('-').next()?.parse().ok();
    for (_, length, path) in reports {
        if count <= MOST_FILES && bytes <= MOST_BYTES {
            return;
        }
        if !pid(&path).is_some_and(&is_watched) && std::fs::remove_file(&path).is_ok() {
            count -= 1;
            bytes -= length;
        }
    }
}

fn read(path: &Path) -> Option<Reported> {
    let Ok(Value::Object(record)) = read_value(path) else { return None };
    let raised_from =
        record.get("raised_from").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let raised_from = raised_from.iter().filter_map(|value| report_of(value.as_object()?)).collect();
    Some(Reported { raised_from, ..report_of(&record)? })
}

fn report_of(record: &Record) -> Option<Reported> {
    let text = |key: &str| record.get(key).and_then(Value::as_str).map(str::to_owned);
    let frames = record.get("frames").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let frame = |value: &Value| {
        let field = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        (field("file"), value.get("line").and_then(Value::as_u64).unwrap_or(0), field("function"))
    };
    let bases = record.get("bases").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Some(Reported {
        type_name: text("type")?,
        module: text("module").unwrap_or_default(),
        bases: bases.iter().filter_map(|base| base.as_str().map(str::to_owned)).collect(),
        // The script leaves out what it can tell without a regular expression; this knows more.
        message: text("message").map(|message| stormlog_model::scrub::text(&message)).unwrap_or_default(),
        errno: record.get("errno").and_then(Value::as_i64).and_then(|number| number.try_into().ok()),
        raised_from: Vec::new(),
        thread: text("thread"),
        frames: frames.iter().map(frame).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(directory: &Path, number: u32, thread: &str, kind: &str) {
        let text = serde_json::json!({"type": kind, "module": "builtins", "thread": thread}).to_string();
        std::fs::write(directory.join(format!("7-{number}.json")), text).unwrap();
    }

    #[test]
    fn reports_are_bounded_and_those_of_living_processes_stay() {
        let directory = tempfile::tempdir().unwrap();
        let count = || std::fs::read_dir(directory.path()).unwrap().count();
        for number in 0..MOST_FILES {
            report(directory.path(), u32::try_from(number).unwrap(), "MainThread", "OSError");
        }
        std::fs::write(directory.path().join("8-1.json"), vec![b' '; 1 << 20]).unwrap();
        bound(directory.path(), |pid| pid == 7);
        assert_eq!(count(), MOST_FILES, "the report of the dead one went");
        bound(directory.path(), |_| false);
        assert_eq!(count(), MOST_FILES);
        for number in 0..9 {
            std::fs::write(directory.path().join(format!("9-{number}.json")), vec![b' '; 1 << 20]).unwrap();
        }
        bound(directory.path(), |_| false);
        assert_eq!(count(), 8, "of 9 MiB the newest 8 stay");
    }

    #[test]
    fn exception_of_the_main_thread_wins_over_later_ones() {
        let directory = tempfile::tempdir().unwrap();
        let last = || last_of(directory.path(), 7).map(|reported| reported.type_name);
        assert_eq!(last(), None);
        report(directory.path(), 1, "loader", "KeyError");
        report(directory.path(), 10, "saver", "OSError");
        assert_eq!(last().as_deref(), Some("OSError"), "the last of the threads, by number");
        report(directory.path(), 2, "MainThread", "MemoryError");
        assert_eq!(last().as_deref(), Some("MemoryError"));
    }
}
