//! What happened to a process that has ended, in the words of every view. Read once: its recordings do not change any more.

use std::path::{Path, PathBuf};

use stormlog_catalog::run::{Process, finish_abandoned, processes};
use stormlog_story::{Ended, Story};

/// Which process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerAsk {
    /// The run, session, capture or file.
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    /// How it ended as far as is known: its supervisor records more of it a moment after the death, and the answer is another one then.
    pub(crate) ended: String,
}

/// The last answer, which is made once.
#[derive(Default)]
pub(crate) struct AnswerReader {
    known: Option<(AnswerAsk, Vec<String>)>,
}

impl AnswerReader {
    /// The lines of the answer; none where nothing more is known than that it ended.
    pub(crate) fn answer(&mut self, ask: &AnswerAsk) -> (AnswerAsk, Vec<String>) {
        let known = self.known.take().filter(|(known, _)| known == ask);
        let known = known.unwrap_or_else(|| (ask.clone(), read(ask)));
        self.known.insert(known).clone()
    }
}

fn read(ask: &AnswerAsk) -> Vec<String> {
    finish_abandoned(&ask.path);
    let process = process_at(&ask.path, ask.pid).filter(|process| process.end.ended() != Ended::Running);
    process.map(|process| Story::of_process(&process).headline).unwrap_or_default()
}

fn process_at(path: &Path, pid: u32) -> Option<Process> {
    if path.is_file() {
        return Process::of_part(path).or_else(|| Process::of_capture(path));
    }
    let found = processes(path, &|| true).ok()?.processes;
    let is_it = |process: &Process| process.pid == Some(pid);
    found.into_iter().find(is_it).or_else(|| Process::of_part(path))
}
