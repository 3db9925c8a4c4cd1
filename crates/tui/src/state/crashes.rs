//! Bundles as a list, and the page of one of them. What a row and a page say is decided in `story`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stormlog_postmortem::bundle::BundleRow;
use stormlog_story::Crash;

use crate::state::entry::Entry;
use crate::state::key::Key;
use crate::state::list::Cursor;
use crate::state::page::Page;

/// A bundle; more of it is read after the list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CrashRow {
    pub(crate) bundle: BundleRow,
    pub(crate) crash: Option<Arc<Crash>>,
}

impl CrashRow {
    /// What a filter looks at.
    fn words(&self) -> String {
        let crash = self.crash.as_deref();
        let program = crash.and_then(|crash| crash.program.as_deref()).unwrap_or_default();
        let rank = crash.and_then(|crash| crash.rank).map(|rank| format!("rank {rank}")).unwrap_or_default();
        let holder = crash.and_then(|crash| crash.holder.as_ref()).map(stormlog_story::Holder::place);
        let said = crash.map(|crash| crash.what_happened.as_str()).unwrap_or_default();
        let path = self.bundle.path.display();
        let backend = self.bundle.backend.as_deref().unwrap_or_default();
        format!(
            "{program} {rank} {} {backend} {} {said} {path}",
            self.bundle.cause,
            holder.unwrap_or_default()
        )
    }
}

/// One look.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CrashesLook {
    /// The newest first.
    pub(crate) rows: Vec<CrashRow>,
    /// What could not be read, a sentence each.
    pub(crate) problems: Vec<String>,
    /// The page that was requested.
    pub(crate) page: Option<(PathBuf, Result<String, String>)>,
}

/// What the list is sorted by, in the order of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashSort {
    /// The newest first.
    Time,
    Program,
    Rank,
    Cause,
    /// The largest first.
    Memory,
    Holder,
}

impl CrashSort {
    pub(crate) const ALL: [CrashSort; 6] = [
        CrashSort::Time,
        CrashSort::Program,
        CrashSort::Rank,
        CrashSort::Cause,
        CrashSort::Memory,
        CrashSort::Holder,
    ];

    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CrashesAction {
    None,
    Used,
    /// The page of this bundle.
    Page(PathBuf),
    /// To write this bundle to a file.
    Export(PathBuf),
    /// The process of the chosen bundle.
    Process,
}

/// The view without its looks.
#[derive(Debug)]
pub(crate) struct CrashesState {
    rows: Vec<CrashRow>,
    pub(crate) problems: Vec<String>,
    /// Nothing was read yet.
    pub(crate) is_empty_yet: bool,
    pub(crate) filter: Entry,
    pub(crate) sort: CrashSort,
    pub(crate) cursor: Cursor,
    /// The bundle whose page is open, and the page once it was read.
    pub(crate) opened: Option<PathBuf>,
    pub(crate) page: Option<Page>,
    /// A run whose newest bundle is to be chosen when it is found.
    wanted: Option<PathBuf>,
    lines: Vec<usize>,
}

impl Default for CrashesState {
    fn default() -> Self {
        CrashesState {
            rows: Vec::new(),
            problems: Vec::new(),
            is_empty_yet: true,
            filter: Entry::default(),
            sort: CrashSort::Time,
            cursor: Cursor::default(),
            opened: None,
            page: None,
            wanted: None,
            lines: Vec::new(),
        }
    }
}

impl CrashesState {
    /// Takes in a look; the chosen bundle stays chosen.
    pub(crate) fn take(&mut self, look: CrashesLook) {
        let chosen = self.chosen().map(|row| row.bundle.path.clone());
        self.rows = look.rows;
        self.problems = look.problems;
        self.is_empty_yet = false;
        self.arrange();
        if let Some(wanted) = self.wanted.take() {
            self.choose(|row| row.bundle.path.starts_with(&wanted));
        } else if let Some(chosen) = chosen {
            self.choose(|row| row.bundle.path == chosen);
        }
        if let Some((path, text)) = look.page.filter(|(path, _)| Some(path) == self.opened.as_ref()) {
            let text = text.unwrap_or_else(|problem| problem);
            match &mut self.page {
                Some(page) => page.set(&text),
                None => self.page = Some(Page::new(&name_of(&path), &text)),
            }
        }
    }

    fn choose(&mut self, is_it: impl Fn(&CrashRow) -> bool) {
        let place = (0..self.len()).find(|line| self.at(*line).is_some_and(&is_it));
        self.cursor.at = place.unwrap_or(self.cursor.at);
    }

    /// A bundle's page is requested, or the bundles of a run.
    pub(crate) fn open(&mut self, path: &Path, is_bundle: bool) {
        if is_bundle {
            (self.opened, self.page) = (Some(path.to_owned()), None);
        } else {
            self.wanted = Some(path.to_owned());
            self.choose(|row| row.bundle.path.starts_with(path));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn at(&self, line: usize) -> Option<&CrashRow> {
        self.rows.get(*self.lines.get(line)?)
    }

    pub(crate) fn chosen(&self) -> Option<&CrashRow> {
        self.at(self.cursor.at)
    }

    /// The bundle that is open or chosen.
    fn bundle(&self) -> Option<PathBuf> {
        self.opened.clone().or_else(|| self.chosen().map(|row| row.bundle.path.clone()))
    }

    /// What is known of the bundle that is open or chosen.
    pub(crate) fn crash(&self) -> Option<&Crash> {
        let path = self.bundle()?;
        self.rows.iter().find(|row| row.bundle.path == path)?.crash.as_deref()
    }

    pub(crate) fn key(&mut self, key: Key) -> CrashesAction {
        if self.filter.is_open {
            self.filter.key(key);
            self.arrange();
            return CrashesAction::Used;
        }
        let bundle = self.bundle();
        match (key, bundle) {
            (Key::Letter('e'), Some(path)) => return CrashesAction::Export(path),
            (Key::Letter('p'), Some(_)) => return CrashesAction::Process,
            _ => {}
        }
        if self.opened.is_some() {
            if matches!(key, Key::Escape | Key::Enter | Key::Backspace) {
                (self.opened, self.page) = (None, None);
            } else if !self.page.as_mut().is_some_and(|page| page.key(key)) {
                return CrashesAction::None;
            }
            return CrashesAction::Used;
        }
        match key {
            Key::Letter('/') => self.filter.open(),
            Key::Letter('s') => self.sort_by(self.sort.next()),
            Key::Enter => {
                if let Some(path) = self.bundle() {
                    self.open(&path, true);
                    return CrashesAction::Page(path);
                }
            }
            Key::Escape if !self.filter.text.is_empty() => {
                self.filter = Entry::default();
                self.arrange();
            }
            key if self.cursor.key(key, self.len()) => {}
            _ => return CrashesAction::None,
        }
        CrashesAction::Used
    }

    pub(crate) fn sort_by(&mut self, sort: CrashSort) {
        self.sort = sort;
        self.arrange();
    }

    fn arrange(&mut self) {
        let CrashesState { rows, filter, sort, .. } = self;
        let fits = |row: &CrashRow| filter.text.is_empty() || filter.matches(&row.words());
        let mut lines: Vec<usize> = (0..rows.len()).filter(|line| fits(&rows[*line])).collect();
        let crash = |line: &usize| rows[*line].crash.as_deref();
        // The newest first among equals.
        match sort {
            CrashSort::Time => {}
            CrashSort::Program => {
                lines.sort_by_key(|line| crash(line).and_then(|crash| crash.program.clone()))
            }
            CrashSort::Rank => lines.sort_by_key(|line| crash(line).and_then(|crash| crash.rank)),
            CrashSort::Cause => lines.sort_by_key(|line| rows[*line].bundle.cause.as_str()),
            CrashSort::Memory => {
                lines.sort_by_key(|line| std::cmp::Reverse(crash(line).and_then(|crash| crash.bytes)));
            }
            CrashSort::Holder => lines.sort_by_key(|line| {
                let place =
                    crash(line).and_then(|crash| crash.holder.as_ref()).map(stormlog_story::Holder::place);
                (place.is_none(), place)
            }),
        }
        self.lines = lines;
        self.cursor.at = self.cursor.at.min(self.lines.len().saturating_sub(1));
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::crashes_look as look;

    fn programs(state: &CrashesState) -> Vec<String> {
        let program =
            |row: &CrashRow| row.crash.as_ref().and_then(|crash| crash.program.clone()).unwrap_or_default();
        (0..state.len()).filter_map(|line| state.at(line)).map(program).collect()
    }

    #[test]
    fn newest_comes_first_and_sorting_goes_by_column() {
        let mut state = CrashesState::default();
        state.take(look());
        assert_eq!(programs(&state), ["train.py", "serve.py", ""]);
        state.sort_by(CrashSort::Memory);
        assert_eq!(programs(&state), ["serve.py", "train.py", ""]);
        state.key(Key::Letter('s'));
        assert_eq!(state.sort, CrashSort::Holder);
    }

    #[test]
    fn page_is_asked_for_shown_and_closed() {
        let mut state = CrashesState::default();
        state.take(look());
        state.key(Key::Down);
        let path = PathBuf::from("/runs/b/oom_dump_20261114T090000Z_815_cuda_1");
        assert_eq!(state.key(Key::Enter), CrashesAction::Page(path.clone()));
        assert!(state.page.is_none(), "not read yet");
        state.take(CrashesLook { page: Some(("/other".into(), Ok("of another".into()))), ..look() });
        assert!(state.page.is_none());
        state.take(CrashesLook {
            page: Some((path.clone(), Ok("serve.py ran out\nof memory".into()))),
            ..look()
        });
        let lines = state.page.as_mut().map(|page| page.window(80, 9).0).unwrap_or_default();
        assert_eq!(lines, ["serve.py ran out", "of memory"]);
        assert_eq!(state.key(Key::Letter('e')), CrashesAction::Export(path));
        assert_eq!(state.key(Key::Escape), CrashesAction::Used);
        assert!(state.opened.is_none() && state.page.is_none());
        assert_eq!(state.key(Key::Escape), CrashesAction::None);
    }

    #[test]
    fn filter_looks_at_program_cause_and_holder() {
        let mut state = CrashesState::default();
        state.take(look());
        for key in "/kv.py:57".chars() {
            state.key(Key::Letter(key));
        }
        assert_eq!(programs(&state), ["serve.py"]);
    }

    #[test]
    fn bundle_of_an_opened_run_is_chosen_when_it_is_found() {
        let mut state = CrashesState::default();
        state.open(Path::new("/runs/b"), false);
        state.take(look());
        assert_eq!(state.crash().and_then(|crash| crash.program.as_deref()), Some("serve.py"));
        state.key(Key::Home);
        state.take(look());
        assert_eq!(state.cursor.at, 0, "only once");
    }
}
