//! What the overview shows: which rows, in which order, which one is chosen. Knows no colours and reads nothing.

use std::cmp::{Ordering, Reverse};
use std::path::PathBuf;

use stormlog_node::{Item, Overview};

use crate::state::entry::{Entry, Typed};
use crate::state::key::Key;
use crate::state::list::Cursor;

/// What the rows are sorted by. Living ones are before those that have ended, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortBy {
    /// Time to limit, then growth, then size; those that have ended by their ends.
    Urgency,
    Growth,
    Size,
    Since,
    Name,
    State,
}

impl SortBy {
    const ALL: [SortBy; 6] =
        [SortBy::Urgency, SortBy::Growth, SortBy::Size, SortBy::Since, SortBy::Name, SortBy::State];

    fn next(self) -> Self {
        let at = SortBy::ALL.iter().position(|one| *one == self).unwrap_or(0);
        SortBy::ALL[(at + 1) % SortBy::ALL.len()]
    }
}

/// The state.
#[derive(Debug)]
pub(crate) struct OverviewState {
    /// `None` until the first look.
    pub(crate) overview: Option<Overview>,
    /// Living or not, and the place in its list.
    rows: Vec<(bool, usize)>,
    pub(crate) cursor: Cursor,
    pub(crate) filter: Entry,
    pub(crate) sort: SortBy,
    chosen: Option<PathBuf>,
}

impl Default for OverviewState {
    fn default() -> Self {
        OverviewState {
            overview: None,
            rows: Vec::new(),
            cursor: Cursor::default(),
            filter: Entry::default(),
            sort: SortBy::Urgency,
            chosen: None,
        }
    }
}

impl OverviewState {
    /// Takes in a look; what was chosen stays so.
    pub(crate) fn take(&mut self, overview: Overview) {
        self.overview = Some(overview);
        self.arrange();
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The row at a place.
    pub(crate) fn item(&self, at: usize) -> Option<&Item> {
        let overview = self.overview.as_ref()?;
        let (is_living, index) = self.rows.get(at)?;
        if *is_living { overview.living.get(*index) } else { overview.ended.get(*index) }
    }

    pub(crate) fn chosen(&self) -> Option<&Item> {
        self.item(self.cursor.at)
    }

    /// Takes a key; false where it has no use for it.
    pub(crate) fn key(&mut self, key: Key) -> bool {
        if self.filter.is_open {
            if self.filter.key(key) != Typed::Accepted {
                self.arrange();
            }
            return true;
        }
        match key {
            Key::Letter('/') => self.filter.open(),
            Key::Letter('s') => self.sort_by(self.sort.next()),
            Key::Escape if !self.filter.text.is_empty() => {
                self.filter = Entry::default();
                self.arrange();
            }
            _ => {
                if !self.cursor.key(key, self.rows.len()) {
                    return false;
                }
                self.remember();
            }
        }
        true
    }

    pub(crate) fn sort_by(&mut self, sort: SortBy) {
        self.sort = sort;
        self.arrange();
    }

    /// Chooses a row by its place.
    pub(crate) fn choose(&mut self, at: usize) {
        self.cursor.at = at.min(self.rows.len().saturating_sub(1));
        self.remember();
    }

    fn remember(&mut self) {
        self.chosen = self.chosen().map(|item| item.path().to_owned());
    }

    fn arrange(&mut self) {
        let Some(overview) = &self.overview else { return };
        let mut rows: Vec<(bool, usize)> = Vec::new();
        for (is_living, items) in [(true, &overview.living), (false, &overview.ended)] {
            let shown = items.iter().enumerate().filter(|(_, item)| matches(&self.filter, item));
            let mut places: Vec<usize> = shown.map(|(at, _)| at).collect();
            if self.sort != SortBy::Urgency {
                places.sort_by(|a, b| compare(self.sort, &items[*a], &items[*b]));
            }
            rows.extend(places.into_iter().map(|at| (is_living, at)));
        }
        self.rows = rows;
        let is_chosen = |at: &usize| self.item(*at).map(Item::path) == self.chosen.as_deref();
        let found = self.chosen.is_some().then(|| (0..self.rows.len()).find(is_chosen)).flatten();
        let last = self.rows.len().saturating_sub(1);
        self.cursor.at = found.unwrap_or(self.cursor.at.min(last));
    }
}

fn matches(filter: &Entry, item: &Item) -> bool {
    if filter.text.is_empty() {
        return true;
    }
    let texts = [Some(item.name()), item.job(), item.host(), item.verdict(), item.path().to_str()];
    texts.into_iter().flatten().any(|text| filter.matches(text)) || filter.matches(item.state())
}

fn compare(sort: SortBy, a: &Item, b: &Item) -> Ordering {
    let since = |item: &Item| Reverse(item.ended_at_ns().or(item.started_at_ns()));
    match sort {
        SortBy::Urgency => Ordering::Equal,
        SortBy::Growth => b.growth().unwrap_or(f64::MIN).total_cmp(&a.growth().unwrap_or(f64::MIN)),
        SortBy::Size => b.size().cmp(&a.size()),
        SortBy::Since => since(a).cmp(&since(b)),
        SortBy::Name => a.name().cmp(b.name()),
        SortBy::State => a.state().cmp(b.state()),
    }
}
