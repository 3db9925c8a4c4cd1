//! The rows of the tables, typed, and their cells in the order of [`crate::schema`]. What repeats is shared. Must never read a file.

use std::sync::Arc;

use stormlog_model::{Counter, Event};

use crate::sample_facts::SampleFacts;
use crate::schema::Table;

/// One cell. Times are microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// Not known.
    Null,
    /// An integer or a time.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(&'a str),
    /// True or false.
    Boolean(bool),
}

impl From<Option<i64>> for Cell<'_> {
    fn from(value: Option<i64>) -> Self {
        value.map_or(Cell::Null, Cell::Integer)
    }
}

impl From<Option<u64>> for Cell<'_> {
    /// A count beyond 63 bits is not a size of memory.
    fn from(value: Option<u64>) -> Self {
        value.and_then(|value| i64::try_from(value).ok()).into()
    }
}

impl From<Option<f64>> for Cell<'_> {
    fn from(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Cell::Null, Cell::Float)
    }
}

impl<'a> From<Option<&'a str>> for Cell<'a> {
    fn from(value: Option<&'a str>) -> Self {
        value.map_or(Cell::Null, Cell::Text)
    }
}

/// A moment as the tables have it.
pub(crate) fn time<'a>(at_ns: Option<i64>) -> Cell<'a> {
    at_ns.map(|at_ns| at_ns.div_euclid(1000)).into()
}

/// A row of a table.
pub trait Row {
    /// Which table.
    fn table(&self) -> Table;
    /// The cell of a column, by its number in [`Table::columns`].
    fn cell(&self, column: usize) -> Cell<'_>;
    /// When, nanoseconds since 1970: decides the date of its partition.
    fn at_ns(&self) -> i64;
    /// The moment by which it expires: a process is of the day that it ended on, wherever its row is.
    fn last_ns(&self) -> i64 {
        self.at_ns()
    }
    /// Whose row it is.
    fn process(&self) -> &Arc<ProcessFacts>;
    /// The device, -1 for the host; `None` where the row is about neither.
    fn device(&self) -> Option<i64>;
}

impl Row for Box<dyn Row> {
    fn last_ns(&self) -> i64 {
        self.as_ref().last_ns()
    }

    fn table(&self) -> Table {
        self.as_ref().table()
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        self.as_ref().cell(column)
    }

    fn at_ns(&self) -> i64 {
        self.as_ref().at_ns()
    }

    fn process(&self) -> &Arc<ProcessFacts> {
        self.as_ref().process()
    }

    fn device(&self) -> Option<i64> {
        self.as_ref().device()
    }
}

/// A process: what every row of it repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The launcher's job id; of a run without one, the run's own id.
    pub job_id: Arc<str>,
    /// `STORMLOG_JOB_NAME`, the scheduler's name, or the program: what runs of one job over time have in common.
    pub job_name: Option<Arc<str>>,
    /// `STORMLOG_JOB_VERSION`: what a trend is drawn over.
    pub job_version: Option<Arc<str>>,
    /// Rank over the whole job; `None` of a launcher that has no rank itself.
    pub rank: Option<i64>,
    /// Rank on its machine.
    pub local_rank: Option<i64>,
    /// Ranks in the job.
    pub world_size: Option<i64>,
    /// How often the launcher had restarted the job.
    pub attempt: Option<i64>,
    /// The machine.
    pub host: Arc<str>,
    /// The run: the name of its directory.
    pub run_id: Arc<str>,
    /// Names the process: the id of its first session.
    pub session_id: Arc<str>,
    /// Its number.
    pub pid: Option<i64>,
    /// What the user would call it.
    pub program: Option<Arc<str>>,
    /// What it is in its run.
    pub role: Role,
}

/// What a process is in its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// The main process of a rank of several.
    Rank,
    /// The process that a run of one rank started.
    Root,
    /// What started the ranks, and is not one.
    Launcher,
    /// A worker in a pool of a framework.
    Worker,
    /// Any other process below one of these.
    #[default]
    Child,
}

impl Role {
    /// As the tables have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Rank => "rank",
            Role::Root => "root",
            Role::Launcher => "launcher",
            Role::Worker => "worker",
            Role::Child => "child",
        }
    }

    /// Whether it stands for its rank in a comparison of ranks.
    #[must_use]
    pub fn is_main(self) -> bool {
        matches!(self, Role::Rank | Role::Root)
    }
}

/// A session of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// The process.
    pub process: Arc<ProcessFacts>,
    /// The session's id.
    pub session_id: Arc<str>,
    /// `outside`, `inside` or `cuda0`; `None` where nothing shows it.
    pub viewpoint: Option<Arc<str>>,
}

/// Columns that all tables have.
pub(crate) const COMMON: usize = crate::schema::COMMON.len();

/// An event of a session.
#[derive(Debug, Clone)]
pub struct SampleRow {
    /// Whose.
    pub session: Arc<SessionFacts>,
    /// The event.
    pub event: Event,
    /// What the columns have of its metadata.
    pub facts: Arc<SampleFacts>,
    /// The phase that the program had entered last and not left, `train / forward`.
    pub phase: Option<Arc<str>>,
    /// The last step that the program had reported.
    pub step: Option<i64>,
}

impl SampleRow {
    fn counter(&self, counter: Counter) -> Cell<'_> {
        self.event.counter(counter).into()
    }
}

impl Row for SampleRow {
    fn table(&self) -> Table {
        Table::Samples
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        let head = &self.event.head;
        match column.checked_sub(COMMON) {
            None => match column {
                0 => time(Some(self.at_ns())),
                3 => Cell::Integer(head.device_id),
                11 => Cell::Text(&self.session.session_id),
                15 => self.facts.device_uuid.as_deref().into(),
                16 => self.step.into(),
                17 => self.phase.as_deref().into(),
                18 => self.facts.metadata.as_deref().into(),
                _ => cell_of_process(&self.session.process, column),
            },
            Some(0) => Cell::Integer(self.at_ns()),
            Some(1) => Cell::Text(&head.event_type),
            Some(2) => self.session.viewpoint.as_deref().into(),
            Some(3) => Cell::Text(&head.collector),
            Some(4) => Some(head.sampling_interval_ms).filter(|interval| *interval > 0).into(),
            Some(5) => self.counter(Counter::Allocated),
            Some(6) => self.counter(Counter::Reserved),
            Some(7) => self.counter(Counter::Active),
            Some(8) => self.counter(Counter::Inactive),
            Some(9) => self.event.counters.change().into(),
            Some(10) => self.counter(Counter::Used),
            Some(11) => self.counter(Counter::Free),
            Some(12) => self.counter(Counter::Total),
            Some(13) => self.facts.process_device_used_bytes.into(),
            Some(14) => self.facts.swap_bytes.into(),
            Some(15) => self.facts.pressure_some.into(),
            Some(16) => self.facts.pressure_full.into(),
            Some(17) => self.facts.retries.into(),
            _ => self.event.context.as_deref().into(),
        }
    }

    fn at_ns(&self) -> i64 {
        i64::try_from(self.event.timestamp_ns).unwrap_or(i64::MAX)
    }

    fn process(&self) -> &Arc<ProcessFacts> {
        &self.session.process
    }

    fn device(&self) -> Option<i64> {
        Some(self.event.head.device_id)
    }
}

/// A common column that is the process's.
pub(crate) fn cell_of_process(process: &ProcessFacts, column: usize) -> Cell<'_> {
    match column {
        1 => Cell::Text(&process.job_id),
        2 => process.rank.into(),
        4 => process.job_name.as_deref().into(),
        5 => process.job_version.as_deref().into(),
        6 => process.local_rank.into(),
        7 => process.world_size.into(),
        8 => process.attempt.into(),
        9 => Cell::Text(&process.host),
        10 => Cell::Text(&process.run_id),
        11 => Cell::Text(&process.session_id),
        12 => process.pid.into(),
        13 => process.program.as_deref().into(),
        14 => Cell::Text(process.role.as_str()),
        _ => Cell::Null,
    }
}
