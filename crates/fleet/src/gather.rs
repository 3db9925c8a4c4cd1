//! Rows in, the state that a report is made of out. Every operation is a maximum, a minimum, a sum or a set union, so the result does not depend on
//! the order of rows, files or threads, and a row that arrives twice changes no peak.
//!
//! Memory is bounded by the number of ranks, not of rows. Must never read a file or a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::meeting;
use crate::row::{DeathRow, FindingRow, HolderRow, Origin, ProcessRow, Sample};

/// Lines kept of each rank and memory: the largest.
const MOST_LINES: usize = 64;
/// Deaths kept of each job; more are counted.
const MOST_DEATHS: usize = 4096;
/// Runs kept of each rank.
const MOST_RUNS: usize = 64;

/// The memory of the host; devices have numbers from 0.
pub const HOST: i64 = -1;

/// The highest value of a counter.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// Bytes.
    pub bytes: i64,
    /// When it was reached first.
    pub at_us: i64,
    /// The phase then.
    pub phase: Option<Arc<str>>,
    /// The step then.
    pub step: Option<i64>,
}

/// What is known of one memory of one rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryState {
    /// The most that one process held.
    pub held: Option<Top>,
    /// The most that its allocator reserved.
    pub reserved: Option<i64>,
    /// Most bytes handed out.
    pub allocated: Option<i64>,
    /// Size or limit.
    pub total: Option<i64>,
}

/// One rank in one attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankState {
    /// By device.
    pub memories: BTreeMap<i64, MemoryState>,
    /// Most bytes resident in one process, as the kernel counted.
    pub peak_host: Option<i64>,
    /// First and last time by run and host.
    pub spans: BTreeMap<(Arc<str>, Arc<str>), (i64, i64)>,
    /// Lines that hold memory: host, device.
    pub lines: [BTreeMap<String, i64>; 2],
}

/// A rank of a job, in an attempt.
pub type RankKey = (Option<i64>, i64);

/// A job.
#[derive(Debug, Clone, Default)]
pub struct JobState {
    /// Names by how often a main process had them.
    pub names: BTreeMap<String, u64>,
    /// Version labels that its processes recorded.
    pub versions: BTreeSet<String>,
    /// Ranks that it should have.
    pub world_size: i64,
    /// First and last time.
    pub span: Option<(i64, i64)>,
    /// Runs.
    pub runs: BTreeSet<Arc<str>>,
    /// Processes.
    pub processes: u64,
    /// Its ranks.
    pub ranks: BTreeMap<RankKey, RankState>,
    /// Processes without a rank: launchers.
    pub unranked: RankState,
    /// Memory limit of each host.
    pub limits: BTreeMap<Arc<str>, i64>,
    /// By process and time: a copy is the same death.
    pub deaths: BTreeMap<(Arc<str>, i64, i64), DeathRow>,
    /// Deaths beyond what is kept.
    pub deaths_not_kept: u64,
    /// By kind and severity: a title and the ranks.
    pub findings: BTreeMap<(String, String), (String, BTreeSet<i64>, u64)>,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Gathered {
    /// By the job's id; while rows are taken, runs that are known only by where they met are each by themselves.
    pub jobs: BTreeMap<Arc<str>, JobState>,
    /// Sample rows.
    pub samples: u64,
    index: FxHashMap<(Arc<str>, RankKey, bool), usize>,
    /// Ranks in the making, moved into their jobs by [`Gathered::settle`].
    open: Vec<(Arc<str>, Option<RankKey>, RankState)>,
}

/// A stream of samples that belong to one memory of one rank.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    rank: usize,
}

fn raise(most: &mut Option<i64>, value: Option<i64>) {
    *most = (*most).max(value);
}

impl Top {
    fn take(top: &mut Option<Top>, bytes: i64, sample: &Sample<'_>) {
        let is_new = match top {
            None => true,
            Some(top) => bytes > top.bytes || (bytes == top.bytes && sample.at_us < top.at_us),
        };
        if !is_new {
            return;
        }
        let same =
            top.as_ref().and_then(|top| top.phase.clone()).filter(|phase| Some(&**phase) == sample.phase);
        let phase = same.or_else(|| sample.phase.map(Arc::from));
        *top = Some(Top { bytes, at_us: sample.at_us, phase, step: sample.step });
    }

    fn merge(top: &mut Option<Top>, other: Option<Top>) {
        let Some(other) = other else { return };
        let is_new = top.as_ref().is_none_or(|top| (other.bytes, -other.at_us) > (top.bytes, -top.at_us));
        if is_new {
            *top = Some(other);
        }
    }
}

impl MemoryState {
    fn take(&mut self, sample: &Sample<'_>) {
        if let Some(bytes) = sample.held {
            Top::take(&mut self.held, bytes, sample);
        }
        raise(&mut self.reserved, sample.reserved);
        raise(&mut self.allocated, sample.allocated);
        raise(&mut self.total, sample.total);
    }

    fn merge(&mut self, other: MemoryState) {
        Top::merge(&mut self.held, other.held);
        raise(&mut self.reserved, other.reserved);
        raise(&mut self.allocated, other.allocated);
        raise(&mut self.total, other.total);
    }
}

impl RankState {
    fn span(&mut self, origin: &Origin, first_us: i64, last_us: i64) {
        let key = (Arc::clone(&origin.run_id), Arc::clone(&origin.host));
        if self.spans.len() < MOST_RUNS || self.spans.contains_key(&key) {
            let span = self.spans.entry(key).or_insert((first_us, last_us));
            *span = (span.0.min(first_us), span.1.max(last_us));
        }
    }

    fn merge(&mut self, other: RankState) {
        for (device, memory) in other.memories {
            self.memories.entry(device).or_default().merge(memory);
        }
        raise(&mut self.peak_host, other.peak_host);
        for (key, (first, last)) in other.spans {
            let span = self.spans.entry(key).or_insert((first, last));
            *span = (span.0.min(first), span.1.max(last));
        }
        for (own, others) in self.lines.iter_mut().zip(other.lines) {
            for (place, bytes) in others {
                let kept = own.entry(place).or_insert(bytes);
                *kept = (*kept).max(bytes);
            }
            bound(own);
        }
    }
}

/// Drops the smallest lines where there are more than twice those that are kept.
fn bound(lines: &mut BTreeMap<String, i64>) {
    if lines.len() <= 2 * MOST_LINES {
        return;
    }
    let mut sizes: Vec<(i64, String)> =
        std::mem::take(lines).into_iter().map(|(place, bytes)| (bytes, place)).collect();
    sizes.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    sizes.truncate(MOST_LINES);
    lines.extend(sizes.into_iter().map(|(bytes, place)| (place, bytes)));
}

impl Origin {
    fn rank_key(&self) -> Option<RankKey> {
        self.rank.filter(|rank| *rank >= 0).map(|rank| (self.attempt, rank))
    }
}

impl Gathered {
    fn job(&mut self, origin: &Origin) -> &mut JobState {
        let job = self.jobs.entry(meeting::key(origin)).or_default();
        job.world_size = job.world_size.max(origin.world_size);
        if !job.runs.contains(&origin.run_id) {
            job.runs.insert(Arc::clone(&origin.run_id));
        }
        job
    }

    /// Where the samples of this process go. Ask again when the process changes, not for every sample.
    pub fn stream(&mut self, origin: &Origin) -> Stream {
        self.job(origin);
        let key = (meeting::key(origin), origin.rank_key());
        let lookup = (Arc::clone(&key.0), key.1.unwrap_or((None, 0)), key.1.is_some());
        if let Some(rank) = self.index.get(&lookup) {
            return Stream { rank: *rank };
        }
        let rank = self.open.len();
        self.open.push((key.0, key.1, RankState::default()));
        self.index.insert(lookup, rank);
        Stream { rank }
    }

    /// Takes samples of one device of one process.
    pub fn samples<'a>(
        &mut self,
        origin: &Origin,
        stream: Stream,
        device: i64,
        samples: impl Iterator<Item = Sample<'a>>,
    ) {
        let Some((_, _, rank)) = self.open.get_mut(stream.rank) else { return };
        let memory = rank.memories.entry(device.max(HOST)).or_default();
        let (mut first, mut last, mut count) = (i64::MAX, i64::MIN, 0_u64);
        for sample in samples {
            memory.take(&sample);
            first = first.min(sample.at_us);
            last = last.max(sample.at_us);
            count += 1;
        }
        if count == 0 {
            return;
        }
        let limit = (device < 0).then_some(memory.total).flatten();
        rank.span(origin, first, last);
        self.samples += count;
        let job = self.job(origin);
        widen(&mut job.span, first, last);
        if let Some(limit) = limit {
            let most = job.limits.entry(Arc::clone(&origin.host)).or_insert(limit);
            *most = (*most).max(limit);
        }
    }

    /// Takes a process.
    pub fn process(&mut self, row: ProcessRow) {
        let stream = self.stream(&row.origin);
        if let Some((_, _, rank)) = self.open.get_mut(stream.rank) {
            raise(&mut rank.peak_host, row.peak_host);
            if let Some(started) = row.started_us {
                rank.span(&row.origin, started, row.ended_us.unwrap_or(started));
            }
        }
        let job = self.job(&row.origin);
        job.processes += 1;
        if let Some(started) = row.started_us {
            widen(&mut job.span, started, row.ended_us.unwrap_or(started));
        }
        if let Some(name) = row.job_name.filter(|_| row.is_main) {
            *job.names.entry(name).or_default() += 1;
        }
        job.versions.extend(row.job_version);
    }

    /// Takes a death.
    pub fn death(&mut self, row: DeathRow) {
        self.stream(&row.origin);
        let job = self.job(&row.origin);
        let key = (Arc::clone(&row.origin.run_id), row.origin.pid, row.at_us);
        if job.deaths.len() < MOST_DEATHS || job.deaths.contains_key(&key) {
            job.deaths.insert(key, row);
        } else {
            job.deaths_not_kept += 1;
        }
    }

    /// Takes a finding.
    pub fn finding(&mut self, row: FindingRow) {
        let rank = row.origin.rank;
        let job = self.job(&row.origin);
        let found = job.findings.entry((row.kind, row.severity)).or_default();
        if found.0.is_empty() || row.title < found.0 {
            found.0 = row.title;
        }
        found.1.extend(rank);
        found.2 += 1;
    }

    /// Takes a line that holds memory.
    pub fn holder(&mut self, row: HolderRow) {
        let stream = self.stream(&row.origin);
        let Some((_, _, rank)) = self.open.get_mut(stream.rank) else { return };
        let lines = &mut rank.lines[usize::from(row.is_of_device)];
        let kept = lines.entry(row.place).or_insert(row.bytes);
        *kept = (*kept).max(row.bytes);
        bound(lines);
    }

    /// Puts what another reader gathered beside it.
    pub fn merge(&mut self, mut other: Gathered) {
        self.settle();
        other.settle();
        self.samples += other.samples;
        for (key, job) in other.jobs {
            match self.jobs.entry(key) {
                std::collections::btree_map::Entry::Vacant(empty) => {
                    empty.insert(job);
                }
                std::collections::btree_map::Entry::Occupied(mut own) => own.get_mut().merge(job),
            }
        }
    }

    /// Moves every rank into its job.
    pub fn settle(&mut self) {
        self.index.clear();
        for (job, key, rank) in std::mem::take(&mut self.open) {
            let job = self.jobs.entry(job).or_default();
            match key {
                Some(key) => job.ranks.entry(key).or_default().merge(rank),
                None => job.unranked.merge(rank),
            }
        }
    }
}

fn widen(span: &mut Option<(i64, i64)>, first: i64, last: i64) {
    let (a, b) = span.unwrap_or((first, last));
    *span = Some((a.min(first), b.max(last)));
}

impl JobState {
    pub(crate) fn merge(&mut self, other: JobState) {
        for (name, count) in other.names {
            *self.names.entry(name).or_default() += count;
        }
        self.versions.extend(other.versions);
        self.world_size = self.world_size.max(other.world_size);
        if let Some((first, last)) = other.span {
            widen(&mut self.span, first, last);
        }
        self.runs.extend(other.runs);
        self.processes += other.processes;
        for (key, rank) in other.ranks {
            self.ranks.entry(key).or_default().merge(rank);
        }
        self.unranked.merge(other.unranked);
        for (host, limit) in other.limits {
            let most = self.limits.entry(host).or_insert(limit);
            *most = (*most).max(limit);
        }
        self.deaths_not_kept += other.deaths_not_kept;
        for (key, death) in other.deaths {
            if self.deaths.len() < MOST_DEATHS || self.deaths.contains_key(&key) {
                self.deaths.insert(key, death);
            } else {
                self.deaths_not_kept += 1;
            }
        }
        for (key, (title, ranks, count)) in other.findings {
            let found = self.findings.entry(key).or_default();
            if found.0.is_empty() || title < found.0 {
                found.0 = title;
            }
            found.1.extend(ranks);
            found.2 += count;
        }
    }
}
