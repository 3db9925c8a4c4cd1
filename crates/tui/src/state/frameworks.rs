//! The view of frameworks: a list of sources, what the chosen one holds, its page, and its replay.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stormlog_catalog::frameworks::{FrameworkSource, FrameworkSourceKind};

use crate::read::frameworks::{Content, Detail, FrameworksAsk, FrameworksLook, Replay};
use crate::state::entry::{Entry, Typed};
use crate::state::key::Key;
use crate::state::list::Cursor;
use crate::state::page::Page;

/// What fills the area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    /// The list, with the chosen source below it.
    #[default]
    List,
    /// The page of the chosen source.
    Page,
    /// Its replay.
    Replay,
}

/// What the list is sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Age,
    Kind,
    Size,
    Name,
}

impl Order {
    pub(crate) const ALL: [Order; 4] = [Order::Age, Order::Kind, Order::Size, Order::Name];

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// What a key led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Unused,
    Used,
    /// A command line for the clipboard.
    Copy(String),
    Say(&'static str),
}

/// The state.
#[derive(Debug, Default)]
pub(crate) struct FrameworksState {
    roots: Vec<PathBuf>,
    /// A run, session or file that another view opened; the list is of it alone.
    subject: Option<PathBuf>,
    sources: Arc<Vec<FrameworkSource>>,
    /// Places in `sources`, as shown.
    rows: Vec<usize>,
    chosen: Option<PathBuf>,
    pub(crate) at_ns: u64,
    pub(crate) is_read: bool,
    pub(crate) cursor: Cursor,
    /// The page that is open, its text set where it is drawn.
    pub(crate) page: Page,
    pub(crate) pane: Pane,
    pub(crate) order: Order,
    pub(crate) filter: Entry,
    detail: Option<Arc<Detail>>,
    replay: Option<Arc<Replay>>,
}

impl FrameworksState {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        FrameworksState { roots, ..FrameworksState::default() }
    }

    /// What is to be read next.
    pub(crate) fn ask(&self) -> FrameworksAsk {
        let paths = self.subject.clone().map_or_else(|| self.roots.clone(), |subject| vec![subject]);
        FrameworksAsk { paths, chosen: self.chosen.clone(), replays: self.pane == Pane::Replay }
    }

    /// Shows the sources of this alone; its page at once where it is one file.
    pub(crate) fn open(&mut self, path: &Path) {
        if self.subject.as_deref() == Some(path) {
            return;
        }
        let is_file = FrameworkSourceKind::of_name(path).is_some();
        self.subject = Some(path.to_owned());
        self.chosen = is_file.then(|| path.to_owned());
        self.pane = if is_file { Pane::Page } else { Pane::List };
        (self.cursor, self.page, self.is_read) = (Cursor::default(), Page::default(), false);
        (self.detail, self.replay) = (None, None);
    }

    /// Takes in what was read.
    pub(crate) fn take(&mut self, look: FrameworksLook) {
        let is_first = !std::mem::replace(&mut self.is_read, true);
        self.at_ns = look.at_ns;
        self.sources = look.sources;
        self.detail =
            look.detail.or_else(|| self.detail.take()).filter(|detail| self.is_chosen(&detail.path));
        self.replay =
            look.replay.or_else(|| self.replay.take()).filter(|replay| self.is_chosen(&replay.path));
        self.arrange();
        if is_first && self.chosen.is_none() {
            self.choose();
        }
    }

    pub(crate) fn subject(&self) -> Option<&Path> {
        self.subject.as_deref()
    }

    pub(crate) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The sources as shown.
    pub(crate) fn sources(&self) -> impl ExactSizeIterator<Item = &FrameworkSource> {
        self.rows.iter().map(|place| &self.sources[*place])
    }

    /// How many there are, shown or not.
    pub(crate) fn count(&self) -> usize {
        self.sources.len()
    }

    pub(crate) fn detail(&self) -> Option<&Detail> {
        self.detail.as_deref()
    }

    pub(crate) fn replay(&self) -> Option<&Replay> {
        self.replay.as_deref()
    }

    /// Whether the chosen source is a snapshot that was read.
    fn has_snapshot(&self) -> bool {
        matches!(self.detail().map(|detail| &detail.content), Some(Content::Snapshot { .. }))
    }

    pub(crate) fn chosen(&self) -> Option<&Path> {
        self.chosen.as_deref()
    }

    fn is_chosen(&self, path: &Path) -> bool {
        self.chosen.as_deref() == Some(path)
    }

    pub(crate) fn key(&mut self, key: Key) -> Step {
        if self.filter.is_open {
            if self.filter.key(key) != Typed::Accepted {
                self.arrange();
                self.choose();
            }
            return Step::Used;
        }
        match key {
            Key::Escape if self.pane != Pane::List => self.close(),
            Key::Escape if !self.filter.text.is_empty() => {
                self.filter = Entry::default();
                self.arrange();
                self.choose();
            }
            Key::Escape if self.subject.is_some() && !self.roots.is_empty() => self.show_all(),
            Key::Letter('y') => return self.command(),
            Key::Letter('r') if self.has_snapshot() => self.show(Pane::Replay),
            Key::Letter('r') => return Step::Say("a replay needs an allocator snapshot: choose one"),
            Key::Letter('a') if self.subject.is_some() => self.show_all(),
            _ if self.pane != Pane::List && self.page.key(key) => {}
            _ if self.pane != Pane::List => return Step::Unused,
            Key::Enter if self.chosen.is_some() => self.show(Pane::Page),
            Key::Letter('/') => self.filter.open(),
            Key::Letter('s') => self.sort(self.order.next()),
            _ if self.cursor.key(key, self.rows.len()) => self.choose(),
            _ => return Step::Unused,
        }
        Step::Used
    }

    pub(crate) fn sort(&mut self, order: Order) {
        self.order = order;
        self.arrange();
    }

    /// A click on a line of the list; on the chosen source it opens its page.
    pub(crate) fn click(&mut self, line: usize) {
        let row = self.cursor.at_line(line);
        if row == self.cursor.at && self.chosen.is_some() {
            self.show(Pane::Page);
        } else if row < self.rows.len() {
            self.cursor.at = row;
            self.choose();
        }
    }

    fn show(&mut self, pane: Pane) {
        (self.pane, self.page) = (pane, Page::default());
    }

    fn close(&mut self) {
        self.show(Pane::List);
    }

    fn show_all(&mut self) {
        (self.subject, self.chosen, self.is_read) = (None, None, false);
        self.cursor = Cursor::default();
        self.close();
    }

    fn command(&self) -> Step {
        let Some(path) = &self.chosen else { return Step::Say("nothing is chosen") };
        let verb = match (self.pane, self.detail().map(|detail| &detail.content)) {
            (Pane::Replay, _) => "replay",
            (_, Some(Content::Snapshot { .. })) => "snapshot",
            (_, Some(Content::Capture(_))) => "stats",
            _ => "analyze",
        };
        Step::Copy(stormlog_model::text::command_line(&["stormlog", verb, &path.to_string_lossy()]))
    }

    fn choose(&mut self) {
        self.chosen = self.rows.get(self.cursor.at).map(|place| self.sources[*place].path.clone());
        let chosen = self.chosen.as_deref();
        self.detail = self.detail.take().filter(|detail| Some(detail.path.as_path()) == chosen);
        self.replay = self.replay.take().filter(|replay| Some(replay.path.as_path()) == chosen);
    }

    /// Filters and sorts; the chosen source stays chosen.
    fn arrange(&mut self) {
        let sources = &self.sources;
        let is_shown = |source: &FrameworkSource| self.filter.matches(&source.path.to_string_lossy());
        self.rows = (0..sources.len()).filter(|place| is_shown(&sources[*place])).collect();
        let compare = |a: &FrameworkSource, b: &FrameworkSource| match self.order {
            Order::Age => Ordering::Equal,
            Order::Kind => a.kind.word().cmp(b.kind.word()),
            Order::Size => b.bytes.cmp(&a.bytes),
            Order::Name => a.path.cmp(&b.path),
        };
        self.rows.sort_by(|a, b| compare(&sources[*a], &sources[*b]));
        let at = self.rows.iter().position(|place| self.is_chosen(&sources[*place].path));
        if let Some(at) = at {
            self.cursor.at = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(names: &[&str]) -> FrameworksLook {
        let source = |(age, name): (usize, &&str)| FrameworkSource {
            path: PathBuf::from(format!("/runs/{name}")),
            kind: FrameworkSourceKind::Snapshot,
            modified_ns: 1000 - age as u64,
            bytes: Some(name.len() as u64),
        };
        let sources = names.iter().enumerate().map(source).collect();
        FrameworksLook { sources: Arc::new(sources), ..FrameworksLook::default() }
    }

    fn state(names: &[&str]) -> FrameworksState {
        let mut state = FrameworksState::new(vec!["/runs".into()]);
        state.take(look(names));
        state
    }

    fn shown(state: &FrameworksState) -> Vec<String> {
        let name = |source: &FrameworkSource| source.path.file_name().unwrap().to_string_lossy().into_owned();
        state.sources().map(name).collect()
    }

    #[test]
    fn the_newest_source_is_chosen_and_the_choice_stays_when_the_list_changes() {
        let mut state = state(&["new", "old", "oldest"]);
        assert_eq!(state.chosen(), Some(Path::new("/runs/new")));
        state.key(Key::Down);
        assert_eq!(state.ask().chosen, Some("/runs/old".into()));
        state.take(look(&["newer", "new", "old"]));
        assert_eq!((state.cursor.at, state.chosen()), (2, Some(Path::new("/runs/old"))));
        state.key(Key::Letter('s'));
        state.key(Key::Letter('s'));
        assert_eq!(state.order, Order::Size);
        assert_eq!(shown(&state), ["newer", "new", "old"]);
    }

    #[test]
    fn a_filter_narrows_the_list_and_escape_undoes_one_thing_at_a_time() {
        let mut state = state(&["rank0", "rank1", "other"]);
        for key in ['/', 'r', 'a', 'n', 'k', '1'].map(Key::Letter) {
            state.key(key);
        }
        assert!(state.filter.is_open);
        assert_eq!(shown(&state), ["rank1"]);
        state.key(Key::Enter);
        state.key(Key::Enter);
        assert_eq!(state.pane, Pane::Page);
        state.key(Key::Escape);
        assert_eq!((state.pane, shown(&state).len()), (Pane::List, 1));
        state.key(Key::Escape);
        assert_eq!(shown(&state).len(), 3);
        assert_eq!(state.key(Key::Escape), Step::Unused, "the shell goes back");
    }

    #[test]
    fn an_opened_run_shows_its_sources_alone_until_all_are_asked_for() {
        let mut state = state(&["a", "b"]);
        state.open(Path::new("/runs/one"));
        assert_eq!(state.ask().paths, [PathBuf::from("/runs/one")]);
        state.take(look(&["one/x"]));
        assert_eq!(state.chosen(), Some(Path::new("/runs/one/x")));
        assert_eq!(state.key(Key::Letter('a')), Step::Used);
        assert_eq!(state.ask().paths, [PathBuf::from("/runs")]);
        state.open(Path::new("/elsewhere/x.pickle.gz"));
        assert_eq!((state.pane, state.ask().chosen), (Pane::Page, Some("/elsewhere/x.pickle.gz".into())));
    }

    #[test]
    fn the_equivalent_command_is_copied_and_a_replay_needs_a_snapshot() {
        let mut state = state(&["it's"]);
        assert!(matches!(state.key(Key::Letter('r')), Step::Say(_)));
        assert_eq!(state.key(Key::Letter('y')), Step::Copy(r"stormlog analyze '/runs/it'\''s'".to_owned()));
    }
}
