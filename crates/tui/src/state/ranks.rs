//! What the view of ranks shows: which job, which ranks in which order, which one is chosen. Knows no colours and reads nothing.

use std::cmp::{Ordering, Reverse};
use std::path::Path;

use stormlog_node::{JobRank, JobRow, by_urgency};

use crate::state::entry::{Entry, Typed};
use crate::state::key::Key;
use crate::state::list::Cursor;

/// What the ranks are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankSort {
    Rank,
    /// Time to limit, then growth, then size.
    Urgency,
    Growth,
    Now,
    Peak,
    State,
    Attempts,
    Host,
}

impl RankSort {
    const ALL: [RankSort; 8] = [
        RankSort::Rank,
        RankSort::Urgency,
        RankSort::Growth,
        RankSort::Now,
        RankSort::Peak,
        RankSort::State,
        RankSort::Attempts,
        RankSort::Host,
    ];

    fn next(self) -> Self {
        let at = RankSort::ALL.iter().position(|one| *one == self).unwrap_or(0);
        RankSort::ALL[(at + 1) % RankSort::ALL.len()]
    }
}

/// The state.
#[derive(Debug)]
pub(crate) struct RanksState {
    /// `None` until the first look.
    pub(crate) jobs: Option<Vec<JobRow>>,
    /// The key of the job that the user chose; else the first is shown.
    pub(crate) job: Option<String>,
    rows: Vec<usize>,
    pub(crate) cursor: Cursor,
    pub(crate) filter: Entry,
    pub(crate) sort: RankSort,
    /// The list of jobs, while one is chosen.
    pub(crate) chooser: Option<Cursor>,
    /// The rank that was chosen.
    rank: Option<i64>,
}

impl Default for RanksState {
    fn default() -> Self {
        RanksState {
            jobs: None,
            job: None,
            rows: Vec::new(),
            cursor: Cursor::default(),
            filter: Entry::default(),
            sort: RankSort::Urgency,
            chooser: None,
            rank: None,
        }
    }
}

impl RanksState {
    pub(crate) fn take(&mut self, jobs: Vec<JobRow>) {
        self.jobs = Some(jobs);
        self.arrange();
    }

    /// The place of the shown job.
    pub(crate) fn job_at(&self) -> Option<usize> {
        let jobs = self.jobs.as_ref()?;
        let chosen = self.job.as_ref().and_then(|key| jobs.iter().position(|job| job.key == *key));
        chosen.or_else(|| (!jobs.is_empty()).then_some(0))
    }

    pub(crate) fn shown_job(&self) -> Option<&JobRow> {
        self.jobs.as_ref()?.get(self.job_at()?)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn rank_at(&self, at: usize) -> Option<&JobRank> {
        self.shown_job()?.ranks.get(*self.rows.get(at)?)
    }

    pub(crate) fn chosen(&self) -> Option<&JobRank> {
        self.rank_at(self.cursor.at)
    }

    /// Takes a key; false where it has no use for it.
    pub(crate) fn key(&mut self, key: Key) -> bool {
        if self.filter.is_open {
            if self.filter.key(key) != Typed::Accepted {
                self.arrange();
            }
            return true;
        }
        if self.chooser.is_some() {
            self.chooser_key(key);
            return true;
        }
        match key {
            Key::Letter('/') => self.filter.open(),
            Key::Letter('s') => self.sort_by(self.sort.next()),
            Key::Letter('J' | 'o') => self.chooser = Some(Cursor::on(self.job_at().unwrap_or(0))),
            Key::Letter(']' | 'l') | Key::Right => self.step(1),
            Key::Letter('[' | 'h') | Key::Left => self.step(-1),
            Key::Escape if !self.filter.text.is_empty() => {
                self.filter = Entry::default();
                self.arrange();
            }
            _ => {
                if !self.cursor.key(key, self.rows.len()) {
                    return false;
                }
                self.rank = self.chosen().map(|rank| rank.rank);
            }
        }
        true
    }

    pub(crate) fn sort_by(&mut self, sort: RankSort) {
        self.sort = sort;
        self.arrange();
    }

    /// Chooses a row by its place.
    pub(crate) fn choose(&mut self, at: usize) {
        self.cursor.at = at.min(self.rows.len().saturating_sub(1));
        self.rank = self.chosen().map(|rank| rank.rank);
    }

    /// Shows the job that a run belongs to, where it is known.
    pub(crate) fn show_run(&mut self, run: &Path) {
        let has_it = |job: &&JobRow| job.ranks.iter().any(|rank| &*rank.run == run);
        let found = self.jobs.iter().flatten().find(has_it).map(|job| job.key.clone());
        if found.is_some() {
            self.show_job(found);
        }
    }

    fn show_job(&mut self, key: Option<String>) {
        self.job = key;
        self.rank = None;
        self.cursor = Cursor::default();
        self.arrange();
    }

    fn step(&mut self, by: isize) {
        let count = self.jobs.as_ref().map_or(0, Vec::len);
        let Some(at) = self.job_at().filter(|_| count > 1) else { return };
        let next = at.checked_add_signed(by).unwrap_or(count - 1) % count;
        let key = self.jobs.as_ref().and_then(|jobs| jobs.get(next)).map(|job| job.key.clone());
        self.show_job(key);
    }

    fn chooser_key(&mut self, key: Key) {
        let count = self.jobs.as_ref().map_or(0, Vec::len);
        let Some(cursor) = &mut self.chooser else { return };
        match key {
            Key::Enter => {
                let at = cursor.at;
                let key = self.jobs.as_ref().and_then(|jobs| jobs.get(at)).map(|job| job.key.clone());
                self.chooser = None;
                self.show_job(key);
            }
            Key::Escape | Key::Letter('J' | 'o' | 'q') => self.chooser = None,
            key => {
                cursor.key(key, count);
            }
        }
    }

    fn arrange(&mut self) {
        let Some(job) = self.shown_job() else {
            self.rows = Vec::new();
            return;
        };
        let is_shown = |rank: &JobRank| {
            let texts = [rank.host.as_deref(), rank.verdict.as_deref(), Some(rank.state)];
            self.filter.text.is_empty()
                || rank.rank.to_string() == self.filter.text
                || texts.into_iter().flatten().any(|text| self.filter.matches(text))
        };
        let mut rows: Vec<usize> = (0..job.ranks.len()).filter(|at| is_shown(&job.ranks[*at])).collect();
        rows.sort_by(|a, b| compare(self.sort, job, &job.ranks[*a], &job.ranks[*b]));
        let found = self.rank.and_then(|rank| rows.iter().position(|at| job.ranks[*at].rank == rank));
        self.rows = rows;
        let last = self.rows.len().saturating_sub(1);
        self.cursor.at = found.unwrap_or(self.cursor.at.min(last));
    }
}

fn compare(sort: RankSort, job: &JobRow, a: &JobRank, b: &JobRank) -> Ordering {
    let (of_a, of_b) = (job.memory(a), job.memory(b));
    let by = match sort {
        RankSort::Rank => Ordering::Equal,
        RankSort::Urgency => by_urgency(
            (of_a.time_to_limit, of_a.growth, of_a.now.or(of_a.peak)),
            (of_b.time_to_limit, of_b.growth, of_b.now.or(of_b.peak)),
        ),
        RankSort::Growth => of_b.growth.unwrap_or(f64::MIN).total_cmp(&of_a.growth.unwrap_or(f64::MIN)),
        RankSort::Now => of_b.now.cmp(&of_a.now),
        RankSort::Peak => of_b.peak.cmp(&of_a.peak),
        RankSort::State => a.state.cmp(b.state),
        RankSort::Attempts => Reverse(a.attempts).cmp(&Reverse(b.attempts)),
        RankSort::Host => a.host.cmp(&b.host),
    };
    by.then_with(|| a.rank.cmp(&b.rank))
}
