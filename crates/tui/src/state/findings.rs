//! The findings of many recordings as one list, and which of them is looked at. What is found and in which words is decided in `analyze` and `story`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stormlog_analyze::report::finding_text;
use stormlog_model::text::inert_lines;
use stormlog_story::FindingRow;

use crate::state::entry::Entry;
use crate::state::key::Key;
use crate::state::list::Cursor;
use crate::state::page::Page;

/// A recording that was judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JudgedRecording {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// The answer about it.
    pub(crate) headline: Vec<String>,
    pub(crate) rows: Vec<FindingRow>,
    /// What could not be read of it.
    pub(crate) problems: Vec<String>,
}

/// One look: what was judged so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FindingsLook {
    /// The one recording that is asked about; `None`: all runs.
    pub(crate) subject: Option<PathBuf>,
    /// Runs that were found.
    pub(crate) found: usize,
    /// Runs that are to be judged: the newest of them.
    pub(crate) wanted: usize,
    /// The newest first.
    pub(crate) judged: Vec<Arc<JudgedRecording>>,
    /// Whether there is more to judge.
    pub(crate) is_behind: bool,
}

/// What the list is sorted by, in the order of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingSort {
    Severity,
    Kind,
    Title,
    Process,
    Memory,
    Holder,
    /// The newest recording first, in it the worst.
    Recorded,
}

impl FindingSort {
    pub(crate) const ALL: [FindingSort; 7] = [
        FindingSort::Severity,
        FindingSort::Kind,
        FindingSort::Title,
        FindingSort::Process,
        FindingSort::Memory,
        FindingSort::Holder,
        FindingSort::Recorded,
    ];

    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FindingsAction {
    None,
    Used,
    /// The process of the chosen finding.
    Process,
    /// All runs, and not one recording.
    All,
    /// Older runs too.
    More,
}

/// The view without its looks.
#[derive(Debug)]
pub(crate) struct FindingsState {
    pub(crate) look: FindingsLook,
    /// Nothing was read yet.
    pub(crate) is_empty_yet: bool,
    pub(crate) filter: Entry,
    pub(crate) sort: FindingSort,
    pub(crate) cursor: Cursor,
    pub(crate) page: Option<Page>,
    /// Recording and row of each line.
    lines: Vec<(usize, usize)>,
}

impl Default for FindingsState {
    fn default() -> Self {
        FindingsState {
            look: FindingsLook::default(),
            is_empty_yet: true,
            filter: Entry::default(),
            sort: FindingSort::Recorded,
            cursor: Cursor::default(),
            page: None,
            lines: Vec::new(),
        }
    }
}

impl FindingsState {
    /// Before the first look at something else.
    pub(crate) fn about(subject: Option<PathBuf>, sort: FindingSort) -> Self {
        let look = FindingsLook { subject, ..FindingsLook::default() };
        FindingsState { look, sort, ..FindingsState::default() }
    }

    /// Takes in a look; the chosen finding stays chosen.
    pub(crate) fn take(&mut self, look: FindingsLook) {
        let chosen = self.chosen().map(|(recording, row)| key_of(recording, row));
        self.look = look;
        self.is_empty_yet = false;
        self.arrange();
        let place = chosen.and_then(|chosen| {
            (0..self.len()).find(|line| self.at(*line).is_some_and(|(a, b)| key_of(a, b) == chosen))
        });
        if let Some(place) = place {
            self.cursor.at = place;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn at(&self, line: usize) -> Option<(&JudgedRecording, &FindingRow)> {
        let (recording, row) = *self.lines.get(line)?;
        let recording = self.look.judged.get(recording)?;
        Some((recording, recording.rows.get(row)?))
    }

    pub(crate) fn chosen(&self) -> Option<(&JudgedRecording, &FindingRow)> {
        self.at(self.cursor.at)
    }

    pub(crate) fn key(&mut self, key: Key) -> FindingsAction {
        if self.filter.is_open {
            self.filter.key(key);
            self.arrange();
            return FindingsAction::Used;
        }
        if let Some(page) = &mut self.page {
            match key {
                Key::Escape | Key::Enter | Key::Backspace => self.page = None,
                Key::Letter('p') => return FindingsAction::Process,
                key if page.key(key) => {}
                _ => return FindingsAction::None,
            }
            return FindingsAction::Used;
        }
        match key {
            Key::Letter('/') => self.filter.open(),
            Key::Letter('s') => self.sort_by(self.sort.next()),
            Key::Letter('p') => return FindingsAction::Process,
            Key::Letter('a') => return FindingsAction::All,
            Key::Letter('m') => return FindingsAction::More,
            Key::Enter => self.page = self.text(),
            Key::Escape if !self.filter.text.is_empty() => {
                self.filter = Entry::default();
                self.arrange();
            }
            key if self.cursor.key(key, self.len()) => {}
            _ => return FindingsAction::None,
        }
        FindingsAction::Used
    }

    pub(crate) fn sort_by(&mut self, sort: FindingSort) {
        self.sort = sort;
        self.arrange();
    }

    /// The whole text of the chosen finding, with the answer about its recording.
    pub(crate) fn text(&self) -> Option<Page> {
        let (recording, row) = self.chosen()?;
        let mut text = finding_text(&row.finding);
        if let Some(holder) = &row.finding.holder {
            let place = if holder.line > 0 {
                format!("{}:{}", holder.file, holder.line)
            } else {
                holder.file.clone()
            };
            text.push_str(&format!("  {:<9} {place} {}\n", "held by", holder.function));
        }
        text.push_str(&format!("  {:<9} {}\n", "recorded", recording.path.display()));
        if !recording.headline.is_empty() {
            text.push('\n');
        }
        for line in &recording.headline {
            text.push_str(line);
            text.push('\n');
        }
        Some(Page::new(&process_words(row), &inert_lines(&text)))
    }

    fn arrange(&mut self) {
        let FindingsState { look, filter, sort, .. } = self;
        let mut lines: Vec<(usize, usize)> = Vec::new();
        for (number, recording) in look.judged.iter().enumerate() {
            let fits = |row: &FindingRow| filter.text.is_empty() || filter.matches(&words_of(recording, row));
            lines.extend(
                (0..recording.rows.len()).filter(|row| fits(&recording.rows[*row])).map(|row| (number, row)),
            );
        }
        let row = |line: &(usize, usize)| &look.judged[line.0].rows[line.1];
        // The order of the recordings stays among equals.
        match sort {
            FindingSort::Recorded => {}
            FindingSort::Severity => lines.sort_by_key(|line| std::cmp::Reverse(row(line).finding.severity)),
            FindingSort::Kind => lines.sort_by(|a, b| row(a).finding.kind.cmp(&row(b).finding.kind)),
            FindingSort::Title => lines.sort_by(|a, b| row(a).finding.title.cmp(&row(b).finding.title)),
            FindingSort::Process => {
                lines.sort_by_key(|line| (row(line).program.clone(), row(line).rank, row(line).pid))
            }
            FindingSort::Memory => lines.sort_by_key(|line| std::cmp::Reverse(row(line).bytes)),
            FindingSort::Holder => {
                lines.sort_by_key(|line| (row(line).held_by.is_none(), row(line).held_by.clone()));
            }
        }
        self.lines = lines;
        self.cursor.at = self.cursor.at.min(self.lines.len().saturating_sub(1));
    }
}

/// `train.py, rank 3, pid 7`, as far as it is known.
pub(crate) fn process_words(row: &FindingRow) -> String {
    let rank = row.rank.map(|rank| format!("rank {rank}"));
    let pid = row.pid.map(|pid| format!("pid {pid}"));
    let parts: Vec<String> = row.program.clone().into_iter().chain(rank).chain(pid).collect();
    parts.join(", ")
}

/// What a filter looks at.
fn words_of(recording: &JudgedRecording, row: &FindingRow) -> String {
    let finding = &row.finding;
    let holder = row.held_by.as_deref().unwrap_or_default();
    let severity = finding.severity.as_str();
    format!(
        "{} {severity} {} {} {} {holder}",
        recording.name,
        finding.kind,
        finding.title,
        process_words(row)
    )
}

fn key_of(recording: &JudgedRecording, row: &FindingRow) -> (PathBuf, String, Option<i64>, String) {
    (recording.path.clone(), row.finding.id.clone(), row.finding.process, row.finding.title.clone())
}

/// The name a path is shown by.
pub(crate) fn short(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
