//! Deaths of a fleet: by cause, by signature over all jobs, and the first of each attempt. Machines' clocks differ: of deaths within
//! [`CLOCK_SKEW_US`] on several machines none is called the first with certainty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stormlog_postmortem::Cause;

use crate::CLOCK_SKEW_US;
use crate::gather::{Gathered, JobState};
use crate::moment::moment;
use crate::report::{CauseReport, DeathReport, FirstDeath, MOST_NAMED, SignatureReport};
use crate::row::DeathRow;

/// Deaths that may have been the first, at most.
const MOST_CANDIDATES: usize = 8;

/// Whether memory is what ended it.
#[must_use]
pub fn is_memory(cause: &str) -> bool {
    Cause::of_word(cause).is_some_and(Cause::is_memory)
}

#[derive(Default)]
struct Group<'a> {
    count: u64,
    jobs: BTreeSet<&'a Arc<str>>,
    hosts: BTreeSet<&'a Arc<str>>,
    span: Option<(i64, i64)>,
    last: Option<&'a DeathRow>,
}

impl<'a> Group<'a> {
    fn add(&mut self, job: &'a Arc<str>, death: &'a DeathRow) {
        self.count += 1;
        self.jobs.insert(job);
        self.hosts.insert(&death.origin.host);
        let (first, last) = self.span.unwrap_or((death.at_us, death.at_us));
        self.span = Some((first.min(death.at_us), last.max(death.at_us)));
        if self.last.is_none_or(|last| death.at_us >= last.at_us) {
            self.last = Some(death);
        }
    }
}

/// By cause, the most frequent first.
#[must_use]
pub fn by_cause(all: &Gathered) -> Vec<CauseReport> {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for (job, death) in each(all) {
        groups.entry(&death.cause).or_default().add(job, death);
    }
    let mut causes: Vec<CauseReport> = groups
        .into_iter()
        .map(|(cause, group)| CauseReport {
            cause: cause.to_owned(),
            is_memory: is_memory(cause),
            count: group.count,
            jobs: group.jobs.len() as u64,
            hosts: group.hosts.len() as u64,
            last_at: group.span.and_then(|(_, last)| moment(last)),
        })
        .collect();
    causes.sort_by_key(|cause| std::cmp::Reverse((cause.count, cause.is_memory)));
    causes
}

/// Jobs of which at least one process ran out of memory and died: a job that died of two causes counts once.
#[must_use]
pub fn memory_jobs(all: &Gathered) -> u64 {
    let has_one = |job: &&JobState| job.deaths.values().any(|death| is_memory(&death.cause));
    all.jobs.values().filter(has_one).count() as u64
}

/// By signature, the most frequent first.
#[must_use]
pub fn by_signature(all: &Gathered) -> Vec<SignatureReport> {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for (job, death) in each(all) {
        if let Some(signature) = &death.signature {
            groups.entry(signature).or_default().add(job, death);
        }
    }
    let mut signatures: Vec<SignatureReport> = groups
        .into_iter()
        .map(|(signature, group)| SignatureReport {
            signature: signature.to_owned(),
            cause: group.last.map(|death| death.cause.clone()).unwrap_or_default(),
            count: group.count,
            jobs: group.jobs.iter().take(MOST_NAMED).map(|job| job.to_string()).collect(),
            job_count: group.jobs.len() as u64,
            host_count: group.hosts.len() as u64,
            first_at: group.span.and_then(|(first, _)| moment(first)),
            last_at: group.span.and_then(|(_, last)| moment(last)),
            sentence: group.last.and_then(|death| death.sentence.clone()),
            line: group.last.and_then(|death| death.line.clone()),
        })
        .collect();
    signatures.sort_by_key(|one| std::cmp::Reverse((one.count, is_memory(&one.cause), one.job_count)));
    signatures
}

fn each(all: &Gathered) -> impl Iterator<Item = (&Arc<str>, &DeathRow)> {
    all.jobs.iter().flat_map(|(key, job)| job.deaths.values().map(move |death| (key, death)))
}

/// The first death of each attempt of a job.
#[must_use]
pub fn first(job_id: &str, job: &JobState) -> Vec<FirstDeath> {
    let mut attempts: BTreeMap<Option<i64>, Vec<&DeathRow>> = BTreeMap::new();
    for death in job.deaths.values() {
        attempts.entry(death.origin.attempt).or_default().push(death);
    }
    attempts.into_iter().filter_map(|(attempt, deaths)| first_of(job_id, attempt, deaths)).collect()
}

fn first_of(job_id: &str, attempt: Option<i64>, mut deaths: Vec<&DeathRow>) -> Option<FirstDeath> {
    deaths.sort_by_key(|death| (death.at_us, death.origin.rank, death.origin.pid));
    let earliest = *deaths.first()?;
    // On one machine the clock decides; on another one, a death within the difference of the clocks may have been before it.
    let may_be_first = |death: &&DeathRow| {
        std::ptr::eq(*death, earliest)
            || (death.origin.host != earliest.origin.host
                && death.at_us.saturating_sub(earliest.at_us) <= CLOCK_SKEW_US)
    };
    let mut candidates: Vec<&DeathRow> = deaths.into_iter().filter(may_be_first).collect();
    let is_certain = candidates.len() == 1;
    // What others die of is a signal or an exit after a lost peer: running out of memory has its own reason.
    candidates.sort_by_key(|death| !is_memory(&death.cause));
    candidates.truncate(MOST_CANDIDATES);
    let report = |death: &&DeathRow| DeathReport {
        rank: death.origin.rank,
        host: death.origin.host.to_string(),
        pid: death.origin.pid,
        at: moment(death.at_us),
        cause: death.cause.clone(),
        sentence: death.sentence.clone(),
    };
    Some(FirstDeath {
        job_id: job_id.to_owned(),
        attempt,
        is_certain,
        candidates: candidates.iter().map(report).collect(),
    })
}
