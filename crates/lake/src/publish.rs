//! Publishing: the rows of recordings that a lake does not hold yet, sorted, as new files.
//!
//! What is there already is read from the files themselves ([`crate::marks`]); a second publication adds nothing, a killed one is continued, and a run that
//! grows is published up to ten seconds before its newest sample, so that samples of other threads that arrive late are not lost. Publishers do not
//! disturb each other: a run is claimed while it is read, and files have unique names. Must never hold more than a bounded number of rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use stormlog_parquet::ENGINE_GROUP_ROWS;

use crate::copies::{RunCopy, without_copies};
use crate::directories;
use crate::end_rows::{DeathRow, FindingRow, HolderRow, ProcessRow};
use crate::expire;
use crate::layout::{Partition, day_of, escaped_job, part_files, sweep_unfinished};
use crate::lock::{LakeLock, RunClaim, create_lake};
use crate::marks::{self, Ends, Marks};
use crate::part_writer::{PartWriter, SortKey, sort_key};
use crate::progress::{HOLD_NS, PendingRow, SessionProgress};
use crate::row::{ProcessFacts, Row, SampleRow, SessionFacts};
use crate::rows::{Problem, Receiver, Recording, Recordings, RunFacts, Stop};
use crate::saved_marks::SavedMarks;
use crate::schema::Table;
use crate::{LakeError, delta};

/// Runs that are claimed at once: each is an open file.
const BATCH_RUNS: usize = 128;
/// Samples of one rank that are sorted at once; longer recordings are several files.
const MOST_PENDING: usize = 400_000;
/// Rows of the small tables that are held until they are written.
const MOST_SMALL: usize = 50_000;
/// Files get their names at least this often, between two runs.
const FINISH_EVERY: Duration = Duration::from_secs(10);
/// Files that are open at once, each with up to one row group of rows.
const MOST_OPEN: usize = 4;
/// A file is ended when it is this large.
const FILE_BYTES: u64 = 256 << 20;
/// 2000-01-01 to 2200-01-01: other times are those of a machine without a clock.
const DAYS: std::ops::Range<i32> = 10_957..84_006;
/// Problems that are kept; the rest is counted.
const MOST_PROBLEMS: usize = 1_000;

/// What is published, and how.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    /// Run directories, directories of them, or recordings without a run.
    pub paths: Vec<PathBuf>,
    /// The lake, which is made where it is missing.
    pub lake: PathBuf,
    /// Write a Delta log. A lake that has one is always kept up to date.
    pub is_delta: bool,
}

/// What was published.
#[derive(Debug, Default)]
pub struct PublishReport {
    /// Runs that were looked at.
    pub runs: u64,
    /// Runs that another process was publishing.
    pub claimed: u64,
    /// Copies of these runs at the paths, which were not read.
    pub copies: Vec<RunCopy>,
    /// Rows of each table that were added.
    pub rows: FxHashMap<Table, u64>,
    /// Files that were added.
    pub files: Vec<PathBuf>,
    /// Their size.
    pub bytes: u64,
    /// Rows whose time is not one of a clock.
    pub timeless: u64,
    /// What could not be read, as far as it is kept.
    pub problems: Vec<Problem>,
    /// How many problems there were.
    pub problem_count: u64,
}

impl PublishReport {
    fn problem(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// A damaged file may be met by the marks and by the Delta log.
    fn problem_once(&mut self, problem: Problem) {
        if !self.problems.iter().any(|known| known.path == problem.path) {
            self.problem(problem);
        }
    }

    /// Rows of all tables.
    #[must_use]
    pub fn all_rows(&self) -> u64 {
        self.rows.values().sum()
    }
}

/// Publishes what is at the paths and not in the lake.
pub fn publish(options: &PublishOptions) -> Result<PublishReport, LakeError> {
    // First: a path that is not there leaves no lake behind.
    let found = Recordings::at(&options.paths)?;
    let lake = &directories::named_by_user(&options.lake);
    create_lake(lake)?;
    let (once, copies) = without_copies(&found.runs);
    sweep(lake, &once);
    let _lock = LakeLock::shared(lake)?;
    for table in Table::ALL.into_iter().filter(|table| delta::has_log(lake, *table)) {
        // Before marks are read: files may have been removed by hand, or given up by another program. What is wrong with others is reported at the end.
        delta::sync(lake, table)?;
    }
    let mut publisher = Publisher::new(lake)?;
    found.problems.iter().for_each(|problem| publisher.report.problem(problem.clone()));
    publisher.report.copies = copies;
    for batch in once.chunks(BATCH_RUNS) {
        publisher.publish(batch)?;
    }
    for table in Table::ALL {
        if options.is_delta || delta::has_log(lake, table) {
            let problems = delta::sync(lake, table)?;
            problems.into_iter().for_each(|problem| publisher.report.problem_once(problem));
        }
    }
    Ok(publisher.report)
}

/// Removes the drafts that killed publishers left of the jobs that are published, unless another publisher is active. Drafts of samples only, which are large
/// and written for long; `compact` removes all of them.
fn sweep(lake: &Path, runs: &[&Recording]) {
    let Ok(_alone) = LakeLock::alone(lake) else { return };
    let Ok(opened) = directories::lake(lake) else { return };
    let jobs: FxHashSet<&Arc<str>> = runs.iter().map(|recording| &recording.facts.job_id).collect();
    for job_id in jobs {
        sweep_unfinished(&opened, Table::Samples, Some(&escaped_job(job_id)));
    }
}

/// A file of samples that is being filled.
struct OpenPart {
    writer: PartWriter,
    rows: Vec<SampleRow>,
    last: SortKey,
    used: u64,
}

/// A row of a table that is written at the end of a batch.
struct SmallRow {
    row: Box<dyn Row>,
    /// What its file is marked with.
    of: Vec<String>,
}

struct Publisher {
    lake: PathBuf,
    saved: SavedMarks,
    host: String,
    first_day: i32,
    marks: FxHashMap<(Table, Arc<str>), Marks>,
    batch: u64,
    pending: Vec<PendingRow>,
    sessions: Vec<SessionProgress>,
    last_session: usize,
    ends: FxHashMap<Arc<str>, Ends>,
    open: FxHashMap<Partition, OpenPart>,
    uses: u64,
    small: Vec<SmallRow>,
    finished_at: Instant,
    finish_every: Duration,
    run: RunFacts,
    report: PublishReport,
    error: Option<LakeError>,
}

impl Publisher {
    fn new(lake: &Path) -> Result<Self, LakeError> {
        Ok(Publisher {
            lake: lake.to_owned(),
            saved: SavedMarks::of(lake)?,
            host: stormlog_liveness::host_name(),
            first_day: expire::first_day(lake)?,
            marks: FxHashMap::default(),
            batch: 1,
            pending: Vec::new(),
            sessions: Vec::new(),
            last_session: 0,
            ends: FxHashMap::default(),
            open: FxHashMap::default(),
            uses: 0,
            small: Vec::new(),
            finished_at: Instant::now(),
            finish_every: FINISH_EVERY,
            run: RunFacts::default(),
            report: PublishReport::default(),
            error: None,
        })
    }

    fn publish(&mut self, batch: &[&Recording]) -> Result<(), LakeError> {
        let mut claims = Vec::new();
        for recording in batch {
            self.report.runs += 1;
            let claim = RunClaim::take(&self.lake, &recording.facts.key)
                .map_err(|source| LakeError::Io { path: self.lake.clone(), source })?;
            if claim.is_none() {
                self.report.claimed += 1;
            }
            claims.push(claim);
        }
        // What others have published before the claims were taken is seen, and nothing of these runs is added after.
        self.batch += 1;
        let jobs: FxHashSet<&Arc<str>> = batch.iter().map(|recording| &recording.facts.job_id).collect();
        self.marks.retain(|(_, job_id), _| jobs.contains(job_id));
        for (recording, _) in batch.iter().zip(&claims).filter(|(_, claim)| claim.is_some()) {
            self.run = recording.facts.clone();
            if recording.read(self) == Err(Stop)
                && let Some(error) = self.error.take()
            {
                return Err(error);
            }
            self.finish_if_due()?;
        }
        self.finish_all()?;
        drop(claims);
        Ok(())
    }

    /// Between two runs: a publisher that is killed loses the work of a bounded time, and memory is bounded.
    fn finish_if_due(&mut self) -> Result<(), LakeError> {
        if self.small.len() > MOST_SMALL || self.finished_at.elapsed() >= self.finish_every {
            self.finish_all()?;
        }
        Ok(())
    }

    fn finish_all(&mut self) -> Result<(), LakeError> {
        self.flush(true)?;
        let parts: Vec<Partition> = self.open.keys().cloned().collect();
        parts.iter().try_for_each(|partition| self.finish_part(partition))?;
        self.ends.clear();
        self.flush_small()?;
        self.finished_at = Instant::now();
        Ok(())
    }

    /// What is published of a job in a table.
    fn marks(&mut self, table: Table, job_id: &Arc<str>) -> &Marks {
        self.read_marks(table, job_id);
        self.marks.entry((table, Arc::clone(job_id))).or_default()
    }

    /// Reads the marks of a job, once a batch: of the files that were not there when they were read last.
    fn read_marks(&mut self, table: Table, job_id: &Arc<str>) {
        let marks = self.marks.entry((table, Arc::clone(job_id))).or_default();
        if marks.batch == self.batch {
            return;
        }
        marks.batch = self.batch;
        let job = escaped_job(job_id);
        for file in part_files(&self.lake, table, Some(&job)) {
            if !marks.is_new(&file) {
                continue;
            }
            match stormlog_store::TableFile::open(&file.path) {
                Ok(open) => marks.add(file.partition.day, open.metadata(marks::KEY).unwrap_or("[]")),
                Err(error) => {
                    let problem = Problem::of_error(&file.path, &error);
                    let advice = "remove the file: its rows are published again where the runs exist";
                    self.report.problem(problem.with_advice(advice));
                }
            }
        }
        // Of files that another program has deleted since.
        for file in self.saved.files(table, Some(&job)) {
            if !marks.is_new(&file) {
                continue;
            }
            match self.saved.read(table, &file) {
                Ok(text) => marks.add(file.partition.day, &text),
                Err(error) => {
                    let problem = Problem::of_error(&file.path, &error);
                    self.report.problem(problem.with_advice("rows of it may be published again"));
                }
            }
        }
    }

    fn keep(&mut self, result: Result<(), LakeError>) -> Result<(), Stop> {
        result.map_err(|error| {
            self.error = Some(error);
            Stop
        })
    }

    /// Takes a sample in, where it is not published yet.
    fn take(&mut self, row: SampleRow) -> Result<(), LakeError> {
        let (at_ns, day) = (row.at_ns(), day_of(row.at_ns()));
        if !DAYS.contains(&day) {
            self.report.timeless += 1;
            return Ok(());
        }
        let is_other_rank = self.sessions.first().is_some_and(|first| {
            let (known, new) = (&first.session.process, &row.session.process);
            !Arc::ptr_eq(known, new) && (&known.job_id, known.rank) != (&new.job_id, new.rank)
        });
        if is_other_rank {
            self.flush(true)?;
        }
        let session = self.session_at(&row.session);
        let setbacks = self.sessions[session].observe(at_ns);
        let to_ns = match self.sessions[session].published_to(day, at_ns) {
            Some(to_ns) => to_ns,
            None => {
                let facts = Arc::clone(&row.session);
                let marks = self.marks(Table::Samples, &facts.process.job_id);
                let to_ns = marks.to_ns(day, &facts.session_id, setbacks);
                self.sessions[session].begin_day(day, to_ns, at_ns);
                to_ns
            }
        };
        if at_ns > to_ns && day >= self.first_day {
            self.pending.push(PendingRow { row, session, setbacks });
            if self.pending.len() >= MOST_PENDING {
                self.flush(false)?;
            }
        }
        Ok(())
    }

    fn session_at(&mut self, session: &Arc<SessionFacts>) -> usize {
        if self.sessions.get(self.last_session).is_some_and(|known| Arc::ptr_eq(&known.session, session)) {
            return self.last_session;
        }
        let known = self.sessions.iter().position(|known| Arc::ptr_eq(&known.session, session));
        self.last_session = known.unwrap_or_else(|| {
            self.sessions.push(SessionProgress::new(session));
            self.sessions.len() - 1
        });
        self.last_session
    }

    /// Writes the samples of the current rank; `is_whole`: there are no more of it.
    fn flush(&mut self, is_whole: bool) -> Result<(), LakeError> {
        let mut rows = std::mem::take(&mut self.pending);
        if is_whole {
            let sessions = std::mem::take(&mut self.sessions);
            rows.retain(|row| !sessions.get(row.session).is_some_and(|session| session.holds(row)));
            self.last_session = 0;
        } else {
            let newest_ns = rows.iter().map(PendingRow::at_ns).max().unwrap_or(0) - HOLD_NS;
            let is_now =
                |row: &PendingRow| row.at_ns() <= newest_ns && !self.sessions[row.session].holds(row);
            let (now, later): (Vec<PendingRow>, Vec<PendingRow>) = rows.into_iter().partition(is_now);
            (rows, self.pending) = if now.len() > later.len() {
                (now, later)
            } else {
                // Hundreds of thousands of samples within seconds: those of the last moment wait for the others of it.
                let newest_ns = newest_ns + HOLD_NS;
                now.into_iter().chain(later).partition(|row| row.at_ns() < newest_ns)
            };
        }
        rows.sort_by_key(|row| (day_of(row.at_ns()), sort_key(&row.row)));
        while let Some(first) = rows.first() {
            let day = day_of(first.at_ns());
            let partition = Partition::of(first.at_ns(), &first.row.session.process.job_id);
            let end = rows.partition_point(|row| day_of(row.at_ns()) <= day);
            let rest = rows.split_off(end);
            self.add(partition, std::mem::replace(&mut rows, rest))?;
        }
        Ok(())
    }

    /// Adds sorted rows of one partition to its file.
    fn add(&mut self, partition: Partition, rows: Vec<PendingRow>) -> Result<(), LakeError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let (first, last) = (sort_key(&first.row), sort_key(&last.row));
        if self
            .open
            .get(&partition)
            .is_some_and(|open| open.last > first || open.writer.bytes() >= FILE_BYTES)
        {
            self.finish_part(&partition)?;
        }
        if !self.open.contains_key(&partition) {
            if self.open.len() >= MOST_OPEN {
                let oldest = self.open.iter().min_by_key(|(_, open)| open.used).map(|(at, _)| at.clone());
                oldest.map_or(Ok(()), |oldest| self.finish_part(&oldest))?;
            }
            let writer = PartWriter::create(&self.lake, Table::Samples, &partition, &self.host)?;
            self.open.insert(partition.clone(), OpenPart { writer, rows: Vec::new(), last: first, used: 0 });
        }
        self.uses += 1;
        let Some(open) = self.open.get_mut(&partition) else { return Ok(()) };
        (open.last, open.used) = (last, self.uses);
        let mut counted: Vec<(&PendingRow, i64, u64)> = Vec::new();
        for row in &rows {
            let is_same = |known: &PendingRow| {
                known.setbacks == row.setbacks && Arc::ptr_eq(&known.row.session, &row.row.session)
            };
            match counted.iter_mut().find(|(known, ..)| is_same(known)) {
                Some((_, to_ns, count)) => (*to_ns, *count) = (row.at_ns().max(*to_ns), *count + 1),
                None => counted.push((row, row.at_ns(), 1)),
            }
        }
        for (row, to_ns, count) in counted {
            open.writer.mark(&row.row.session.session_id, row.setbacks, to_ns, count);
        }
        *self.report.rows.entry(Table::Samples).or_default() += rows.len() as u64;
        open.rows.extend(rows.into_iter().map(|pending| pending.row));
        let whole = open.rows.len() / ENGINE_GROUP_ROWS * ENGINE_GROUP_ROWS;
        if whole > 0 {
            open.writer.write(&open.rows[..whole])?;
            open.rows.drain(..whole);
        }
        Ok(())
    }

    fn finish_part(&mut self, partition: &Partition) -> Result<(), LakeError> {
        let Some(mut open) = self.open.remove(partition) else { return Ok(()) };
        open.writer.write(&open.rows)?;
        for mark in open.writer.marks.values_mut() {
            mark.end(self.ends.get(mark.of.as_str()).map(Vec::as_slice).unwrap_or_default());
        }
        self.finished(open.writer)
    }

    fn finished(&mut self, writer: PartWriter) -> Result<(), LakeError> {
        let (path, _, bytes) = writer.finish()?;
        self.report.files.push(path);
        self.report.bytes += bytes;
        Ok(())
    }

    /// Writes the rows of the small tables, those of `processes` last: they state that the others are there.
    fn flush_small(&mut self) -> Result<(), LakeError> {
        let mut by_part: std::collections::BTreeMap<(usize, Partition), Vec<SmallRow>> = Default::default();
        for small in std::mem::take(&mut self.small) {
            let table = small.row.table();
            let order = Table::ALL.iter().position(|known| *known == table).unwrap_or(0);
            let partition = Partition::of(small.row.at_ns(), &small.row.process().job_id);
            by_part.entry((order, partition)).or_default().push(small);
        }
        for ((order, partition), mut rows) in by_part {
            let table = Table::ALL[order];
            rows.sort_by_key(|small| sort_key(small.row.as_ref()));
            let mut writer = PartWriter::create(&self.lake, table, &partition, &self.host)?;
            for small in &rows {
                for of in &small.of {
                    writer.mark(of, 0, small.row.at_ns(), 1);
                }
            }
            let rows: Vec<Box<dyn Row>> = rows.into_iter().map(|small| small.row).collect();
            writer.write(&rows)?;
            *self.report.rows.entry(table).or_default() += rows.len() as u64;
            self.finished(writer)?;
        }
        Ok(())
    }

    /// Keeps a row of a small table, unless its day is there: then an earlier publisher was killed before it could state so.
    fn add_small(&mut self, row: impl Row + 'static, of: Vec<String>) {
        let (table, job_id) = (row.table(), Arc::clone(&row.process().job_id));
        let day = day_of(row.at_ns());
        let has_expired = day_of(row.last_ns()) < self.first_day;
        let is_there = has_expired || of.first().is_some_and(|of| self.marks(table, &job_id).has_on(day, of));
        if !is_there {
            self.small.push(SmallRow { row: Box::new(row), of });
        }
    }

    fn run_mark(&self) -> String {
        format!("run:{}", self.run.key)
    }
}

impl Receiver for Publisher {
    fn wants_session(&mut self, session: &SessionFacts, is_final: bool) -> bool {
        let first_day = self.first_day;
        let marks = self.marks(Table::Samples, &session.process.job_id);
        !(is_final && marks.is_whole(&session.session_id, first_day))
    }

    fn wants_process(&mut self, process: &ProcessFacts) -> bool {
        !self.marks(Table::Processes, &process.job_id).has(&process.session_id)
    }

    fn wants_judgement(&mut self, run: &RunFacts) -> bool {
        let mark = format!("run:{}", run.key);
        !self.marks(Table::Processes, &run.job_id).has(&mark)
    }

    fn sample(&mut self, row: SampleRow) -> Result<(), Stop> {
        let result = self.take(row);
        self.keep(result)
    }

    fn session_end(&mut self, session: &Arc<SessionFacts>, is_final: bool) -> Result<(), Stop> {
        if let Some(progress) = self.sessions.iter_mut().find(|known| Arc::ptr_eq(&known.session, session)) {
            progress.is_final = is_final;
            if is_final {
                self.ends.insert(Arc::clone(&session.session_id), progress.ends());
            }
        }
        Ok(())
    }

    fn process(&mut self, row: ProcessRow) -> Result<(), Stop> {
        let mut of = vec![row.process.session_id.to_string()];
        if self.run.is_over && row.process.session_id == self.run.key {
            of.push(self.run_mark());
        }
        self.add_small(row, of);
        Ok(())
    }

    fn death(&mut self, row: DeathRow) -> Result<(), Stop> {
        let of = vec![row.process.session_id.to_string()];
        self.add_small(row, of);
        Ok(())
    }

    fn finding(&mut self, row: FindingRow) -> Result<(), Stop> {
        let of = vec![self.run_mark()];
        self.add_small(row, of);
        Ok(())
    }

    fn holder(&mut self, row: HolderRow) -> Result<(), Stop> {
        let of = vec![self.run_mark()];
        self.add_small(row, of);
        Ok(())
    }

    fn problem(&mut self, problem: Problem) -> Result<(), Stop> {
        self.report.problem(problem);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
