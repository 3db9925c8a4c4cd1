//! The analysis rules for events and calls in any shape Python has them.
//!
//! Events cross as objects or mappings, one by one; results are classes, with a dictionary where they have a record. Phases are Python's own
//! objects: what is returned says which moment to ask them about.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString};
use serde_json::Value;
use stormlog_analyze::Sample;
use stormlog_analyze::calls::{self, Call, CallThresholds};
use stormlog_analyze::rules::collective::{CollectiveConfig, MarkerSearch, RankView};
use stormlog_analyze::rules::collective_ranks::CollectiveRanks;
use stormlog_analyze::rules::gap::{
    FragmentationSeen, GapFinding, GapThresholds, hidden_gaps, hidden_gaps_of,
};
use stormlog_analyze::rules::ranks::{Job, cross_rank};
use stormlog_model::Record;

use crate::derived::{derive, integer, present};
use crate::events::EventBuffer;
use crate::record::{object_to_python, to_python};

/// A class of hidden memory that a rule found, and the event that shows it.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct Finding {
    classification: &'static str,
    severity: &'static str,
    confidence: f64,
    evidence: Py<PyDict>,
    description: String,
    remediation: Vec<&'static str>,
    /// Its position in what was given.
    event: usize,
}

/// A stretch of hidden memory that goes with a collective: its record, and the spikes in it.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
struct CollectiveInterval {
    record: Py<PyDict>,
    /// When, and of which session.
    spikes: Vec<(u64, Option<String>)>,
}

/// The ranks of a job compared: the record, how many of its notes are the merge's, and the merged samples.
pub(crate) struct Ranks {
    pub(crate) record: Record,
    pub(crate) merge_notes: usize,
    /// Position and aligned time.
    pub(crate) points: Vec<(usize, i128)>,
}

/// As `Ranks`, for Python.
#[pyclass(frozen, get_all, module = "stormlog._native.analysis")]
pub(crate) struct RankComparison {
    record: Py<PyDict>,
    merge_notes: usize,
    points: Vec<(usize, i128)>,
}

impl RankComparison {
    pub(crate) fn new(py: Python<'_>, ranks: Ranks) -> PyResult<Self> {
        let Ranks { record, merge_notes, points } = ranks;
        Ok(RankComparison { record: object_to_python(py, &record)?.unbind(), merge_notes, points })
    }
}

/// The classes of hidden memory in samples.
#[pyfunction]
#[pyo3(signature = (events, *, ratio, spike_zscore, drift_r_squared, fragmentation))]
fn memory_gaps(
    events: &Bound<'_, PyAny>,
    ratio: f64,
    spike_zscore: f64,
    drift_r_squared: f64,
    fragmentation: f64,
) -> PyResult<Vec<Finding>> {
    let thresholds = GapThresholds { ratio, spike_zscore, drift_r_squared, fragmentation };
    let found = match events.cast::<EventBuffer>() {
        Ok(buffer) => hidden_gaps_of(buffer.get().events(), &thresholds),
        Err(_) => {
            let GapEvents { samples, places, seen } = gap_events(events)?;
            let place =
                |gap: &GapFinding| samples.iter().position(|sample| sample.at_ns == gap.at_ns).unwrap_or(0);
            let gaps = hidden_gaps(&samples, &seen, &thresholds).into_iter();
            gaps.map(|gap| (places[place(&gap)], gap)).map(|(place, gap)| (gap, place)).collect()
        }
    };
    let row = |(gap, place): (GapFinding, usize)| {
        Ok(Finding {
            classification: gap.class.as_str(),
            severity: gap.severity.as_str(),
            confidence: gap.confidence,
            evidence: object_to_python(events.py(), &gap.evidence)?.unbind(),
            description: gap.description,
            remediation: gap.class.remediation().to_vec(),
            event: place,
        })
    };
    found.into_iter().map(row).collect()
}

/// The samples of a list of events in which hidden memory can be seen, and where they are in it.
struct GapEvents {
    samples: Vec<Sample>,
    places: Vec<usize>,
    seen: FragmentationSeen,
}

fn gap_events(events: &Bound<'_, PyAny>) -> PyResult<GapEvents> {
    let mut found = GapEvents { samples: Vec::new(), places: Vec::new(), seen: FragmentationSeen::default() };
    for (place, event) in events.try_iter()?.enumerate() {
        let event = event?;
        let Some(sample) = sample_of(&event)? else { continue };
        if sample.total().is_none() || sample.gap().is_none() {
            continue;
        }
        if let Some(ratio) = derive(&event)?.fragmentation_ratio {
            found.seen.observe(sample.at_ns, ratio);
        }
        found.samples.push(sample);
        found.places.push(place);
    }
    Ok(found)
}

/// The attributes of a Python `CollectiveAttributionConfig`.
#[derive(FromPyObject)]
struct CollectiveSettings {
    min_samples_per_rank: usize,
    min_gap_bytes: u64,
    min_gap_ratio: f64,
    robust_zscore_threshold: f64,
    marker_window_ns: u64,
    interval_padding_ns: u64,
    synchrony_window_ns: u64,
    min_synchrony_ratio: f64,
    min_confidence: f64,
}

/// The stretches of hidden memory that go with collectives.
#[pyfunction]
fn collective_intervals(
    events: &Bound<'_, PyAny>,
    settings: CollectiveSettings,
) -> PyResult<Vec<CollectiveInterval>> {
    let config = CollectiveConfig {
        preset: "custom",
        min_samples_per_rank: settings.min_samples_per_rank,
        min_gap_bytes: settings.min_gap_bytes,
        min_gap_ratio: settings.min_gap_ratio,
        robust_zscore_threshold: settings.robust_zscore_threshold,
        marker_window_ns: settings.marker_window_ns,
        interval_padding_ns: settings.interval_padding_ns,
        synchrony_window_ns: settings.synchrony_window_ns,
        min_synchrony_ratio: settings.min_synchrony_ratio,
        min_confidence: settings.min_confidence,
    };
    let mut ranks = CollectiveRanks::default();
    match events.cast::<EventBuffer>() {
        Ok(buffer) => buffer.get().events().iter().for_each(|event| ranks.observe(event)),
        Err(_) => gather(events, &mut ranks)?,
    }
    let found = ranks.attribute(&config).into_iter().map(|interval| {
        let session = |at: &u64| ranks.session_at(interval.rank, *at).map(str::to_owned);
        let spikes = interval.spikes_ns.iter().map(|at| (*at, session(at))).collect();
        let record = object_to_python(events.py(), &interval.to_record())?.unbind();
        Ok(CollectiveInterval { record, spikes })
    });
    found.collect()
}

/// Takes events that are Python's.
fn gather(events: &Bound<'_, PyAny>, ranks: &mut CollectiveRanks) -> PyResult<()> {
    let mut search = MarkerSearch::default();
    for event in events.try_iter()? {
        let event = event?;
        let sample = sample_of(&event)?;
        let session = match present(&event, "session_id")? {
            Some(session) if sample.is_some() => Some(session.str()?.to_string().into()),
            _ => None,
        };
        ranks.add(
            natural(&event, "rank")?.unwrap_or(0),
            natural(&event, "world_size")?.unwrap_or(0),
            time_of(&event)?,
            names_a_collective(&event, &mut search)?,
            sample.map(|sample| (sample, session)),
        );
    }
    Ok(())
}

/// The ranks of one job: samples with known device use, in the order they came. `stated_ns` is the sampling interval they claim.
#[pyfunction]
fn rank_timeline(
    events: &Bound<'_, PyAny>,
    job_id: Option<String>,
    declared_world_size: u64,
    stated_ns: u64,
    notes: Vec<String>,
) -> PyResult<RankComparison> {
    let mut ranks: BTreeMap<u64, Vec<(Sample, usize)>> = BTreeMap::new();
    for (place, event) in events.try_iter()?.enumerate() {
        let event = event?;
        let Some(sample) = sample_of(&event)? else { continue };
        ranks.entry(natural(&event, "rank")?.unwrap_or(0)).or_default().push((sample, place));
    }
    let (ranks, _) = rank_result(ranks, job_id, declared_world_size, stated_ns, notes, true);
    RankComparison::new(events.py(), ranks)
}

/// The comparison of ranks, and rank and moment of its suspects; with the points where they are wanted.
pub(crate) fn rank_result(
    mut ranks: BTreeMap<u64, Vec<(Sample, usize)>>,
    job_id: Option<String>,
    declared_world_size: u64,
    stated_ns: u64,
    notes: Vec<String>,
    with_points: bool,
) -> (Ranks, Vec<(u64, u64)>) {
    for samples in ranks.values_mut() {
        samples.sort_by_key(|(sample, _)| sample.at_ns);
    }
    let owned: Vec<(u64, Vec<Sample>)> = ranks
        .iter()
        .map(|(rank, samples)| (*rank, samples.iter().map(|(sample, _)| *sample).collect()))
        .collect();
    let job = Job {
        job_id,
        declared_world_size,
        ranks: owned
            .iter()
            .map(|(rank, samples)| RankView { rank: *rank, samples, markers: &[], phases: None })
            .collect(),
        stated_interval_ns: stated_ns,
        notes,
    };
    let found = cross_rank(&job, false);
    let of_merge = found.notes.len().saturating_sub(found.first_cause.notes.len());
    let mut merged: Vec<(i128, u64, u64, usize)> = Vec::new();
    for (rank, samples) in ranks.iter().filter(|_| with_points) {
        let offset = found.first_cause.offsets_ns.get(rank).copied().unwrap_or(0);
        merged.extend(
            samples
                .iter()
                .map(|(sample, place)| (i128::from(sample.at_ns) - offset, *rank, sample.at_ns, *place)),
        );
    }
    merged.sort_unstable();
    let mut record = found.to_record();
    record.insert("first_cause_notes".to_owned(), found.first_cause.notes.clone().into());
    let merged = merged.into_iter().map(|(aligned, _, _, place)| (place, aligned)).collect();
    let suspects =
        found.first_cause.suspects.iter().map(|suspect| (suspect.rank, suspect.first_spike_ns)).collect();
    (Ranks { record, merge_notes: of_merge, points: merged }, suspects)
}

/// One profiled call.
#[pyclass(frozen, from_py_object, module = "stormlog._native.analysis")]
#[derive(Clone)]
struct ProfiledCall(Call);

#[pymethods]
impl ProfiledCall {
    #[new]
    #[pyo3(signature = (*, function, seconds, started, allocated, change, peak, before, after, inactive, reserved))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python constructor, one for each field")]
    fn new(
        function: String,
        seconds: f64,
        started: f64,
        allocated: i64,
        change: i64,
        peak: i64,
        before: i64,
        after: i64,
        inactive: i64,
        reserved: i64,
    ) -> Self {
        ProfiledCall(Call {
            function,
            seconds,
            started,
            allocated,
            change,
            peak,
            before,
            after,
            inactive,
            reserved,
        })
    }
}

/// The patterns and the insights of profiled calls.
#[pyfunction]
#[pyo3(signature = (calls, *, leak, fragmentation, inefficient, slow, intensive, least_calls))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function, one for each threshold")]
fn judge_calls<'py>(
    py: Python<'py>,
    calls: Vec<ProfiledCall>,
    leak: f64,
    fragmentation: f64,
    inefficient: f64,
    slow: f64,
    intensive: f64,
    least_calls: f64,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let thresholds = CallThresholds { leak, fragmentation, inefficient, slow, intensive, least_calls };
    let calls: Vec<Call> = calls.into_iter().map(|call| call.0).collect();
    let objects = |found: Vec<Value>| to_python(py, &Value::Array(found));
    Ok((objects(calls::patterns(&calls, &thresholds))?, objects(calls::insights(&calls, &thresholds))?))
}

/// The counters of a `sample` event; `None` for other events.
fn sample_of(event: &Bound<'_, PyAny>) -> PyResult<Option<Sample>> {
    let Some(kind) = present(event, "event_type")? else { return Ok(None) };
    if !kind.str()?.to_str()?.trim().eq_ignore_ascii_case("sample") {
        return Ok(None);
    }
    let used = natural(event, "device_used_bytes")?;
    let reserved = natural(event, "allocator_reserved_bytes")?;
    let total = integer(event, "device_total_bytes")?.and_then(|total| u64::try_from(total).ok());
    Ok(Some(Sample::new(time_of(event)?, used, reserved, total)))
}

pub(crate) fn time_of(event: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(natural(event, "timestamp_ns")?.unwrap_or(0))
}

pub(crate) fn natural(event: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<u64>> {
    let out_of_range = |value: i128| {
        pyo3::exceptions::PyValueError::new_err(format!("{name} must be between 0 and 2^64, not {value}"))
    };
    integer(event, name)?.map(|value| u64::try_from(value).map_err(|_| out_of_range(value))).transpose()
}

/// Whether the type, the context or any text in the metadata of an event does.
fn names_a_collective(event: &Bound<'_, PyAny>, search: &mut MarkerSearch) -> PyResult<bool> {
    for name in ["event_type", "context", "metadata"] {
        if let Some(value) = present(event, name)?
            && text_does(&value, search, 0)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn text_does(value: &Bound<'_, PyAny>, search: &mut MarkerSearch, depth: usize) -> PyResult<bool> {
    /// Deeper metadata is a loop or hostile.
    const DEEPEST: usize = 64;
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(search.text(&text.to_string_lossy()));
    }
    if depth >= DEEPEST {
        return Ok(false);
    }
    let items = if let Ok(map) = value.cast::<PyMapping>() {
        map.values()?.into_any()
    } else if value.is_instance_of::<pyo3::types::PyList>()
        || value.is_instance_of::<pyo3::types::PyTuple>()
        || value.is_instance_of::<pyo3::types::PySet>()
    {
        value.clone()
    } else {
        return Ok(false);
    };
    for item in items.try_iter()? {
        if text_does(&item?, search, depth + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Finding>()?;
    module.add_class::<ProfiledCall>()?;
    module.add_class::<CollectiveInterval>()?;
    module.add_class::<RankComparison>()?;
    module.add_function(wrap_pyfunction!(memory_gaps, module)?)?;
    module.add_function(wrap_pyfunction!(collective_intervals, module)?)?;
    module.add_function(wrap_pyfunction!(rank_timeline, module)?)?;
    module.add_function(wrap_pyfunction!(judge_calls, module)?)
}
