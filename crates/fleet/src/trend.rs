//! The peak of jobs of one name over time: a job that takes more than those before it is a regression.

use std::collections::BTreeMap;

use stormlog_analyze::series::median;

use crate::report::{JobReport, Trend, TrendPoint};

/// Jobs before one that it is compared with.
const BASELINE: usize = 5;
/// An increase below this share is noise.
const LEAST_SHARE: f64 = 0.05;
/// An increase below this is noise whatever its share.
const LEAST_BYTES: f64 = 67_108_864.0;

/// Of all names that more than one job has. Jobs are compared with those of the same number of ranks: another number shards another way.
#[must_use]
pub fn trends(jobs: &[JobReport]) -> Vec<Trend> {
    let mut named: BTreeMap<(&str, u64, &'static str), Vec<&JobReport>> = BTreeMap::new();
    for job in jobs {
        if let Some((name, (memory, _))) = job.name.as_deref().zip(job.main_memory()) {
            named.entry((name, job.world_size, memory)).or_default().push(job);
        }
    }
    let mut trends: Vec<Trend> = named
        .into_iter()
        .filter(|(_, jobs)| jobs.len() > 1)
        .map(|((name, world_size, memory), mut jobs)| {
            jobs.sort_by(|a, b| (&a.started_at, &a.job_id).cmp(&(&b.started_at, &b.job_id)));
            let points = points(&jobs);
            let is_regression = points.last().is_some_and(|point| point.is_regression);
            Trend { name: name.to_owned(), world_size, memory, is_regression, points }
        })
        .collect();
    trends.sort_by_key(|trend| std::cmp::Reverse((trend.is_regression, trend.increase())));
    trends
}

fn points(jobs: &[&JobReport]) -> Vec<TrendPoint> {
    let peak = |job: &JobReport| job.main_memory().map_or(0, |(_, memory)| memory.peak_bytes);
    let peaks: Vec<f64> = jobs.iter().map(|job| peak(job) as f64).collect();
    jobs.iter()
        .enumerate()
        .map(|(at, job)| {
            let before = &peaks[at.saturating_sub(BASELINE)..at];
            let before = (!before.is_empty()).then(|| median(&mut before.to_vec()));
            let more = before.map_or(0.0, |before| peaks[at] - before);
            TrendPoint {
                job_id: job.job_id.clone(),
                version: job.version.clone(),
                started_at: job.started_at.clone(),
                peak_bytes: peak(job),
                before_bytes: before.map(|before| before as u64),
                is_regression: before.is_some_and(|before| more > LEAST_BYTES.max(LEAST_SHARE * before)),
            }
        })
        .collect()
}

impl Trend {
    /// How much more the newest takes than those before it.
    #[must_use]
    pub fn increase(&self) -> u64 {
        let last = self.points.last();
        last.and_then(|point| Some(point.peak_bytes.saturating_sub(point.before_bytes?))).unwrap_or(0)
    }
}
