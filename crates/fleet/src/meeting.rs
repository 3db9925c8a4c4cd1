//! Jobs whose id is only the address at which their ranks met (`torchrun --master_addr`, or ranks without a launcher). Another run may meet at the same
//! address later, so such runs are gathered one by one and joined at the end: those that overlap in time are one job.

use std::collections::BTreeMap;
use std::sync::Arc;

use stormlog_model::meeting_address;

use crate::CLOCK_SKEW_US;
use crate::gather::{Gathered, JobState};
use crate::moment::moment;
use crate::row::Origin;

/// Between a job id and a run id while runs are gathered: an environment variable holds no NUL.
const SEPARATOR: char = '\0';
/// Between the address and what tells its jobs apart, in reports.
const MARK: char = '@';

/// What the rows of a process are gathered under.
pub(crate) fn key(origin: &Origin) -> Arc<str> {
    match meeting_address(&origin.job_id) {
        Some(_) => format!("{}{SEPARATOR}{}", origin.job_id, origin.run_id).into(),
        None => Arc::clone(&origin.job_id),
    }
}

/// The id that rows have of a job as a report names it.
pub(crate) fn stored_id(job: &str) -> &str {
    match job.split_once(MARK) {
        Some((address, _)) if meeting_address(address).is_some() => address,
        _ => job,
    }
}

/// Every machine reaches itself by these: the same one on two machines is not one meeting.
fn is_loopback(job_id: &str) -> bool {
    let is_loopback =
        |address: &str| address == "localhost" || address == "::1" || address.starts_with("127.");
    meeting_address(job_id).is_some_and(is_loopback)
}

/// First and last time of a run, by its samples or its deaths.
fn span(run: &JobState) -> (i64, i64) {
    let deaths = || run.deaths.values().map(|death| death.at_us);
    let of_deaths = || deaths().min().zip(deaths().max());
    run.span.or_else(of_deaths).unwrap_or((i64::MIN, i64::MIN))
}

/// Whether a launcher started it again: it belongs to the job before it, whatever the time between them.
fn is_restart(run: &JobState) -> bool {
    run.ranks.keys().filter_map(|(attempt, _)| *attempt).min().is_some_and(|attempt| attempt > 0)
}

/// Joins runs that met at one address into jobs.
fn jobs_of(mut runs: Vec<JobState>) -> Vec<JobState> {
    runs.sort_by_key(span);
    let mut jobs: Vec<(i64, JobState)> = Vec::new();
    for run in runs {
        let (first, last) = span(&run);
        match jobs.last_mut() {
            Some((end, job)) if first <= end.saturating_add(CLOCK_SKEW_US) || is_restart(&run) => {
                *end = (*end).max(last);
                job.merge(run);
            }
            _ => jobs.push((last, run)),
        }
    }
    jobs.into_iter().map(|(_, job)| job).collect()
}

impl Gathered {
    /// Makes jobs of the runs that are known by where they met. An address with one job is its id; those of several are distinguished by machine and start.
    pub(crate) fn join_meetings(&mut self) {
        let mut meetings: BTreeMap<String, BTreeMap<Option<Arc<str>>, Vec<JobState>>> = BTreeMap::new();
        for (key, run) in std::mem::take(&mut self.jobs) {
            let Some((job_id, _)) = key.split_once(SEPARATOR) else {
                self.jobs.insert(key, run);
                continue;
            };
            let host = run.hosts().next().filter(|_| is_loopback(job_id)).cloned();
            meetings.entry(job_id.to_owned()).or_default().entry(host).or_default().push(run);
        }
        for (job_id, by_host) in meetings {
            let mut jobs: Vec<(Option<Arc<str>>, JobState)> = Vec::new();
            for (host, runs) in by_host {
                jobs.extend(jobs_of(runs).into_iter().map(|job| (host.clone(), job)));
            }
            let is_one = jobs.len() == 1;
            for (host, job) in jobs {
                let host = host.map(|host| format!("{MARK}{host}")).unwrap_or_default();
                let start = moment(span(&job).0).map(|start| format!("{MARK}{start}")).unwrap_or_default();
                let id = if is_one { job_id.clone() } else { format!("{job_id}{host}{start}") };
                self.jobs.insert(id.into(), job);
            }
        }
    }
}
