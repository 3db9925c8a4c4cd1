//! The analysis of events that were loaded and not touched since: straight from the native buffer, without an object an
//! event. Gives what `analysis` gives for the same events as Python objects; `tests/python` holds the two together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pyo3::prelude::*;
use stormlog_analyze::Sample;
use stormlog_model::{Counter, Event, Support};

use crate::analysis::{RankComparison, rank_result};
use crate::events::EventBuffer;

/// How often each thing came, in the order they came first.
struct Tally<K>(Vec<(K, u64)>);

impl<K: PartialEq> Tally<K> {
    fn add(&mut self, key: K) {
        match self.0.iter_mut().rev().find(|(known, _)| *known == key) {
            Some((_, count)) => *count += 1,
            None => self.0.push((key, 1)),
        }
    }

    /// The most frequent; of equals the first.
    fn most_common(&self) -> Option<&K> {
        let most = self.0.iter().map(|(_, count)| *count).max()?;
        self.0.iter().find(|(_, count)| *count == most).map(|(key, _)| key)
    }
}

/// What `summarize_cross_rank_analysis` needs: the comparison without points (`None` where no sample can be compared),
/// the job, what was left out, and the session of each suspect.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct RankSummary {
    comparison: Option<Py<RankComparison>>,
    job_id: Option<String>,
    notes: Vec<String>,
    suspect_sessions: Vec<Option<String>>,
}

/// The ranks of a whole buffer compared.
#[pyfunction]
fn rank_summary(py: Python<'_>, buffer: &EventBuffer) -> PyResult<RankSummary> {
    let events = buffer.events();
    let is_sample = |event: &&Event| Sample::of(event).is_some();
    let mut notes = Vec::new();
    let samples = events.iter().filter(is_sample).count();
    if samples != events.len() {
        notes.push("Ignored non-sample events during cross-rank analysis.".to_owned());
    }
    let mut jobs: Tally<Arc<str>> = Tally(Vec::new());
    let mut used = 0;
    let counted = || events.iter().filter(is_sample).filter(|event| event.counter(Counter::Used).is_some());
    for event in counted() {
        used += 1;
        if let Some(job) = event.head.identity.job_id.as_deref().filter(|job| !job.is_empty()) {
            // A name is copied when it is new only.
            match jobs.0.iter_mut().rev().find(|(known, _)| &**known == job) {
                Some((_, count)) => *count += 1,
                None => jobs.add(Arc::from(job)),
            }
        }
    }
    if used != samples {
        notes.push("Ignored samples without device-used memory during cross-rank analysis.".to_owned());
    }
    if used == 0 {
        notes.push("No sample telemetry events were available for distributed analysis.".to_owned());
        return Ok(RankSummary { comparison: None, job_id: None, notes, suspect_sessions: Vec::new() });
    }
    let job_id = jobs.most_common().map(|job| job.to_string());
    if jobs.0.len() > 1 {
        notes.push("Multiple job_id values were observed; filtering to the most common value.".to_owned());
    }
    let is_ours = |event: &&Event| jobs.0.len() <= 1 || event.head.identity.job_id == job_id;
    let mut ranks: BTreeMap<u64, Vec<(Sample, usize)>> = BTreeMap::new();
    let mut claimed: Tally<u64> = Tally(Vec::new());
    let mut stated: BTreeMap<u64, u64> = BTreeMap::new();
    for (place, event) in events.iter().enumerate() {
        let sample = Sample::of(event).filter(|sample| sample.used().is_some());
        let Some(sample) = sample.filter(|_| is_ours(&event)) else { continue };
        let identity = &event.head.identity;
        ranks.entry(identity.rank).or_default().push((sample, place));
        if identity.world_size > 1 {
            claimed.add(identity.world_size);
        }
        if event.head.sampling_interval_ms > 0 {
            *stated.entry(event.head.sampling_interval_ms).or_default() += 1;
        }
    }
    let world_size = claimed.most_common().copied().unwrap_or(1);
    let found = rank_result(ranks, job_id.clone(), world_size, median_ns(&stated), notes.clone(), false);
    let suspect_sessions = found
        .1
        .iter()
        .map(|(rank, at_ns)| {
            let is_it = |event: &&Event| {
                event.timestamp_ns == *at_ns && event.head.identity.rank == *rank && is_ours(event)
            };
            counted().rfind(is_it).map(|event| event.head.session_id.clone())
        })
        .collect();
    let comparison = Some(Py::new(py, RankComparison::new(py, found.0)?)?);
    Ok(RankSummary { comparison, job_id, notes, suspect_sessions })
}

/// The median of intervals in milliseconds, in nanoseconds.
fn median_ns(stated: &BTreeMap<u64, u64>) -> u64 {
    let count: u64 = stated.values().sum();
    if count == 0 {
        return 0;
    }
    let at = |wanted: u64| {
        let mut before = 0;
        stated.iter().find_map(|(value, times)| {
            before += times;
            (before > wanted).then_some(*value)
        })
    };
    let (low, high) = (at((count - 1) / 2).unwrap_or(0), at(count / 2).unwrap_or(0));
    (low.saturating_add(high)).saturating_mul(500_000)
}

/// The ranks that events are of.
#[pyfunction]
fn event_ranks(buffer: &EventBuffer) -> BTreeSet<u64> {
    buffer.events().iter().map(|event| event.head.identity.rank).collect()
}

/// Whether any sample has all three counters, and whether any of those can tell fragmentation.
#[pyfunction]
fn allocator_availability(buffer: &EventBuffer) -> (bool, bool) {
    let needed = [Counter::Allocated, Counter::Reserved, Counter::Used];
    let mut counted = buffer.events().iter().filter(|event| {
        Sample::of(event).is_some() && needed.iter().all(|counter| event.counter(*counter).is_some())
    });
    let Some(first) = counted.next() else { return (false, false) };
    let reports_fragmentation =
        |event: &Event| event.metadata.capabilities.supports(Support::FragmentationAnalysis);
    (true, reports_fragmentation(first) || counted.any(reports_fragmentation))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RankSummary>()?;
    module.add_function(wrap_pyfunction!(rank_summary, module)?)?;
    module.add_function(wrap_pyfunction!(event_ranks, module)?)?;
    module.add_function(wrap_pyfunction!(allocator_availability, module)?)
}
