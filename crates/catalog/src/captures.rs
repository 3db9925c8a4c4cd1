//! The heap captures at a path, and the default one when none is named: the main process's. The report of a run, its `-o` and every
//! view choose by this rule. Must read no more than the heads of the files, unless the rule needs the peaks, which the caller reads.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_capture::layout::LIVE_SUFFIX;
use stormlog_capture::live::Live;
use stormlog_capture::source::Source;
use stormlog_model::naming::{ProgramName, is_wrapper};
use stormlog_model::text::short_name;

use crate::run::layout::{CAPTURE_FILE, CAPTURES_DIRECTORY, RUN_FILE, is_capture, is_growing_capture};
use crate::run::{Process, RunRecord};

/// Directories are looked at so deep: a run holds sessions, a folder of runs holds runs.
const DEPTH: usize = 4;
/// More files than this in a directory are not ours.
const MOST: usize = 100_000;

/// Reads the peak of a capture; `None` where that is not possible. Capture content is read by crates above this one.
pub type PeakReader<'a> = &'a dyn Fn(&Path) -> Option<u64>;

/// Why there is no capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureSearchError {
    /// There is nothing at the path.
    #[error("{} does not exist; name a capture, or the directory of a session or run", path.display())]
    NotThere {
        /// The path.
        path: PathBuf,
    },
    /// A directory without any.
    #[error("{} holds no heap capture ({CAPTURE_FILE}); record one with `stormlog run --heap`", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A directory whose captures are all of other processes.
    #[error("{} holds no capture of process {pid}; it has those of {known}", path.display())]
    NoSuchProcess {
        /// The directory.
        path: PathBuf,
        /// The process asked for.
        pid: u32,
        /// Those that are there.
        known: String,
    },
}

/// The capture that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its path.
    pub path: PathBuf,
    /// How many others there were: of its process, where one was requested.
    pub others: usize,
    /// Why it is this one, in words that follow "this is".
    pub reason: String,
}

/// One capture of a run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CaptureFile {
    /// Its path.
    pub path: PathBuf,
    /// Its process; `None` where the file does not say.
    pub pid: Option<u32>,
    /// What the user would call the program.
    pub program: String,
    /// Most bytes on the heap at one time; `None` where it cannot be read.
    pub peak_bytes: Option<u64>,
    /// Bytes on disk.
    pub bytes: u64,
    /// Whether it is the default one when none is named.
    pub main: bool,
}

/// A capture, by the head of its file.
#[derive(Debug, Clone, Default)]
pub struct CaptureHead {
    /// Its path.
    pub path: PathBuf,
    /// Its process; `None` where the file does not say.
    pub pid: Option<u32>,
    /// The parent of that process.
    pub parent: Option<u32>,
    /// When it began, nanoseconds since 1970; 0 where the file does not say.
    pub started_ns: u64,
    /// The program and its arguments, as recorded: scrub them before they are shown.
    pub command: Vec<String>,
}

/// A capture and the run it is part of.
struct FoundCapture {
    head: CaptureHead,
    /// The directory with the run's file above it.
    run: Option<PathBuf>,
}

/// A run, by its file.
struct Run {
    directory: PathBuf,
    pid: Option<u32>,
    started_ns: i64,
    /// The peaks of captures that are finished, by process.
    peaks: Vec<(u32, u64)>,
}

/// The capture at `path`: of several the main process's, or of process `pid` where that is requested. A process has one for each program it was.
pub fn find(path: &Path, pid: Option<u32>, peak: PeakReader<'_>) -> Result<Chosen, CaptureSearchError> {
    if !path.is_dir() {
        let is_there = path.exists() || Live::path_of(path).exists();
        return match is_there {
            true => Ok(Chosen { path: path.to_owned(), others: 0, reason: String::new() }),
            false => Err(CaptureSearchError::NotThere { path: path.to_owned() }),
        };
    }
    let mut found = match found(path) {
        Ok(found) => found,
        Err(nothing) => return of_part(path, pid).ok_or(nothing),
    };
    let runs = runs(path, &found);
    if let Some(pid) = pid {
        let mut pids: Vec<u32> = found.iter().filter_map(|found| found.head.pid).collect();
        found.retain(|found| found.head.pid == Some(pid));
        if found.is_empty() {
            pids.sort_unstable();
            pids.dedup();
            let known = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            return Err(CaptureSearchError::NoSuchProcess { path: path.to_owned(), pid, known });
        }
    }
    let others = found.len().saturating_sub(1);
    let (at, reason) = match pid {
        Some(_) => (last_of(&found, |_| true).unwrap_or(0), "the last"),
        None => main(&found, &runs, peak),
    };
    Ok(Chosen { path: found.swap_remove(at).head.path, others, reason: reason.to_owned() })
}

/// A bundle and what a process recorded of itself hold no capture: theirs is the last of their process.
fn of_part(path: &Path, pid: Option<u32>) -> Option<Chosen> {
    let process = Process::of_part(path).filter(|process| pid.is_none() || process.pid == pid)?;
    let others = process.captures.len().saturating_sub(1);
    let path = process.captures.into_iter().next()?;
    Some(Chosen { path, others, reason: "the last of its process".to_owned() })
}

/// Every capture at `path`, the main one first, then in the order of their start. Reads a capture only where the run's file does not have its peak.
pub fn captures(path: &Path, peak: PeakReader<'_>) -> Result<Vec<CaptureFile>, CaptureSearchError> {
    if !path.is_dir() {
        return one(&find(path, None, peak)?.path, peak);
    }
    let found = match found(path) {
        Ok(found) => found,
        Err(nothing) => return of_part(path, None).map_or(Err(nothing), |chosen| one(&chosen.path, peak)),
    };
    let runs = runs(path, &found);
    let (main, _) = main(&found, &runs, peak);
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|at| (*at != main, found[*at].head.started_ns));
    let file = |at: usize| {
        let known = known_peak(&found, at, &runs);
        found[at].file(
            at == main,
            known.or_else(|| peak(&found[at].head.path)),
            &program(&found[main].head.command),
        )
    };
    Ok(order.into_iter().map(file).collect())
}

fn one(path: &Path, peak: PeakReader<'_>) -> Result<Vec<CaptureFile>, CaptureSearchError> {
    let found = FoundCapture::of(path, path.parent().unwrap_or(Path::new(".")));
    Ok(vec![found.file(true, peak(path), "python")])
}

/// The main one of several, and why: the process that the run started, as the last program it became; behind a shell or another wrapper, which holds
/// nothing itself, the process with the highest peak. Without a run, the process whose parent was not recorded.
fn main(found: &[FoundCapture], runs: &[Run], peak: PeakReader<'_>) -> (usize, &'static str) {
    let newest = runs.iter().max_by_key(|run| run.started_ns);
    let of_run = |found: &FoundCapture| newest.is_none_or(|run| found.run.as_deref() == Some(&run.directory));
    let started = match newest.and_then(|run| run.pid) {
        Some(pid) => last_of(found, |one| of_run(one) && one.head.pid == Some(pid)),
        None => {
            let is_root = |one: &FoundCapture| {
                of_run(one) && !found.iter().any(|other| other.head.pid == one.head.parent)
            };
            let pid = last_of(found, is_root).and_then(|at| found[at].head.pid);
            let is_only = found.iter().filter(|one| is_root(one)).all(|one| one.head.pid == pid);
            last_of(found, |one| is_root(one) && one.head.pid == pid).filter(|_| is_only)
        }
    };
    match started {
        Some(at) if !is_wrapper(&found[at].head.command) => (at, "the main process's"),
        Some(at) if !found.iter().any(|one| of_run(one) && !is_wrapper(&one.head.command)) => {
            (at, "the main process's")
        }
        _ => {
            let candidates = (0..found.len()).filter(|at| of_run(&found[*at]));
            let peaks = candidates.map(|at| {
                let known = known_peak(found, at, runs).or_else(|| peak(&found[at].head.path));
                (known.unwrap_or(0), std::cmp::Reverse(found[at].head.started_ns), at)
            });
            (peaks.max().map_or(0, |(.., at)| at), "the one with the highest peak")
        }
    }
}

/// Of those that `matches`, the one that began last.
fn last_of(found: &[FoundCapture], matches: impl Fn(&FoundCapture) -> bool) -> Option<usize> {
    let matching = found.iter().enumerate().filter(|(_, one)| matches(one));
    matching.max_by_key(|(at, one)| (one.head.started_ns, std::cmp::Reverse(*at))).map(|(at, _)| at)
}

/// The peak that the run's file has for the last program of a process.
fn known_peak(found: &[FoundCapture], at: usize, runs: &[Run]) -> Option<u64> {
    let one = &found[at];
    let run = runs.iter().find(|run| one.run.as_deref() == Some(&run.directory))?;
    let (_, peak) = run.peaks.iter().find(|(pid, _)| Some(*pid) == one.head.pid)?;
    let is_last = last_of(found, |other| other.head.pid == one.head.pid && other.run == one.run) == Some(at);
    is_last.then_some(*peak)
}

impl CaptureHead {
    /// Of the capture at a path; what its file does not say is left out.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let path = path.to_owned();
        let Ok(header) = Source::open(&path).and_then(|source| source.header()) else {
            return CaptureHead { path, ..CaptureHead::default() };
        };
        let about: Value = serde_json::from_slice(&header.metadata).unwrap_or_default();
        let words = about["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
        CaptureHead {
            path,
            pid: Some(header.pid),
            parent: about["parent_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
            started_ns: header.start_realtime_ns,
            command: words.map(str::to_owned).collect(),
        }
    }
}

impl FoundCapture {
    /// `below`: how far up the run's file is looked for.
    fn of(path: &Path, below: &Path) -> FoundCapture {
        let inside = path.ancestors().skip(1).take_while(|directory| directory.starts_with(below));
        // A session's directory may be requested, whose run is one above it.
        let run = inside.chain(below.parent()).find(|directory| directory.join(RUN_FILE).is_file());
        FoundCapture { head: CaptureHead::of(path), run: run.map(Path::to_owned) }
    }

    /// `run`: what the run's main program is called, which workers run too.
    fn file(&self, main: bool, peak_bytes: Option<u64>, run: &str) -> CaptureFile {
        let length = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
        CaptureFile {
            path: self.head.path.clone(),
            pid: self.head.pid,
            program: short_name(
                &ProgramName::of_worker(&stormlog_model::scrub::command(&self.head.command), run).word,
            ),
            peak_bytes,
            bytes: length(&self.head.path) + length(&Live::path_of(&self.head.path)),
            main,
        }
    }
}

/// What the user would call a program, without secrets, safe for a terminal.
#[must_use]
pub fn program(command: &[String]) -> String {
    short_name(&ProgramName::of(&stormlog_model::scrub::command(command)).word)
}

fn found(path: &Path) -> Result<Vec<FoundCapture>, CaptureSearchError> {
    let mut paths = Vec::new();
    collect(path, 0, &mut paths);
    paths.sort();
    match paths.is_empty() {
        true => Err(CaptureSearchError::Empty { path: path.to_owned() }),
        false => Ok(paths.iter().map(|capture| FoundCapture::of(capture, path)).collect()),
    }
}

fn runs(path: &Path, found: &[FoundCapture]) -> Vec<Run> {
    let mut directories: Vec<&PathBuf> = found.iter().filter_map(|found| found.run.as_ref()).collect();
    directories.sort();
    directories.dedup();
    // One session of a run was requested: the run's main process may be another.
    directories.retain(|directory| directory.starts_with(path));
    directories.into_iter().filter_map(|directory| Run::of(directory)).collect()
}

impl Run {
    fn of(directory: &Path) -> Option<Run> {
        let record = RunRecord::read(directory).ok()??;
        let peaks = record.processes.iter().filter_map(|row| Some((row.pid, row.heap_peak_bytes?)));
        Some(Run {
            directory: directory.to_owned(),
            pid: record.pid,
            started_ns: record.started_at_ns.unwrap_or(0),
            peaks: peaks.collect(),
        })
    }
}

fn collect(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    found.extend(captures_in(directory));
    if depth == DEPTH {
        return;
    }
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().take(MOST) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), depth + 1, found);
        }
    }
}

/// The captures that are files of this directory, by number: those of a session, or in a run's directory of captures those that processes
/// still write. A finished file, its live file, or both are one.
#[must_use]
pub fn captures_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_growing = directory.file_name().is_some_and(|name| name == CAPTURES_DIRECTORY);
    let name_of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(LIVE_SUFFIX).unwrap_or(&name);
        let is_one = is_capture(name) || (is_growing && is_growing_capture(name));
        (is_one && entry.file_type().is_ok_and(|kind| kind.is_file())).then(|| name.to_owned())
    };
    let mut names: Vec<String> = entries.flatten().take(MOST).filter_map(name_of).collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names.dedup();
    let paths = names.into_iter().map(|name| directory.join(name));
    paths.filter(|path| path.is_file() || Live::has_begun(&Live::path_of(path))).collect()
}

/// The capture of the last program that a session's process was.
#[must_use]
pub fn last_capture(session: &Path) -> Option<PathBuf> {
    let path = session.join(CAPTURE_FILE);
    (path.is_file() || Live::has_begun(&Live::path_of(&path))).then_some(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::{CaptureHead, CaptureSearchError, Chosen, FoundCapture, Run, fs, known_peak};
    use std::path::{Path, PathBuf};

    fn capture(pid: u32, parent: u32, started_ns: u64, command: &[&str], run: Option<&str>) -> FoundCapture {
        let head = CaptureHead {
            path: format!("{pid}-{started_ns}.bin").into(),
            pid: Some(pid),
            parent: Some(parent),
            started_ns,
            command: command.iter().map(|word| (*word).to_owned()).collect(),
        };
        FoundCapture { head, run: run.map(PathBuf::from) }
    }

    fn run(directory: &str, pid: u32, started_ns: i64, peaks: &[(u32, u64)]) -> Run {
        Run { directory: directory.into(), pid: Some(pid), started_ns, peaks: peaks.to_vec() }
    }

    fn main(found: &[FoundCapture], runs: &[Run]) -> (usize, &'static str) {
        super::main(found, runs, &|_| None)
    }

    fn find(path: &Path) -> Result<Chosen, CaptureSearchError> {
        super::find(path, None, &|_| None)
    }

    #[test]
    fn main_capture_is_that_of_the_process_the_run_started() {
        let python = ["python3", "a.py"];
        let found = [
            capture(12, 11, 2, &python, Some("r")),
            capture(11, 1, 1, &["sh", "-c", "exec python3 a.py"], Some("r")),
            capture(11, 1, 3, &python, Some("r")),
        ];
        let runs = [run("r", 11, 5, &[(12, 900), (11, 100)])];
        assert_eq!(main(&found, &runs), (2, "the main process's"), "the last program it became");
        assert_eq!(known_peak(&found, 2, &runs), Some(100));
        assert_eq!(known_peak(&found, 1, &runs), None, "the peak is the last program's");
    }

    #[test]
    fn main_capture_behind_a_shell_has_the_highest_peak() {
        let found = [
            capture(11, 1, 1, &["/bin/bash", "job.sh"], Some("r")),
            capture(12, 11, 2, &["cp", "a", "b"], Some("r")),
            capture(13, 11, 3, &["python3", "train.py"], Some("r")),
        ];
        let runs = [run("r", 11, 5, &[(11, 50), (12, 10), (13, 900)])];
        assert_eq!(main(&found, &runs), (2, "the one with the highest peak"));
        assert_eq!(main(&found[..1], &runs), (0, "the main process's"), "nothing else was recorded");
    }

    #[test]
    fn main_capture_of_several_runs_is_the_newest_runs() {
        let found = [
            capture(11, 1, 1, &["python3", "a.py"], Some("old")),
            capture(21, 1, 2, &["python3", "a.py"], Some("new")),
        ];
        assert_eq!(main(&found, &[run("old", 11, 5, &[]), run("new", 21, 6, &[])]).0, 1);
    }

    #[test]
    fn main_capture_without_a_run_is_the_parents() {
        let python = ["python3", "a.py"];
        let found = [capture(12, 11, 2, &python, None), capture(11, 1, 1, &python, None)];
        assert_eq!(main(&found, &[]), (1, "the main process's"));
    }

    #[test]
    fn captures_of_a_running_run_are_found() {
        let run = tempfile::tempdir().unwrap();
        let growing = run.path().join("heap");
        fs::create_dir(&growing).unwrap();
        for name in ["12.bin.live", "12.bin", "12.bin.1.live", "notes.bin", "12.bin.old", ".bin"] {
            fs::write(growing.join(name), b"SLHEAPLV").unwrap();
        }
        // Their processes were killed before anything was recorded.
        fs::write(growing.join("13.bin.live"), [0; 10]).unwrap();
        fs::write(growing.join("14.bin.live"), []).unwrap();
        fs::write(run.path().join("12.bin"), [0; 100]).unwrap();
        assert_eq!(find(run.path()).unwrap().others, 1);
    }

    #[test]
    fn a_directory_without_captures_and_a_missing_path_are_errors() {
        let empty = tempfile::tempdir().unwrap();
        assert!(find(empty.path()).unwrap_err().to_string().contains("holds no heap capture"));
        assert!(find(&empty.path().join("x")).unwrap_err().to_string().contains("does not exist"));
    }
}
