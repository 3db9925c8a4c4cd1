//! The answers as plain structures: what the commands print and scripts read.

use serde::Serialize;
use stormlog_model::format_bytes as size;

use crate::analysis::decompose::{Decomposition, decompose, releasable};
use crate::analysis::growth::{self, Growth};
use crate::analysis::hints::{HintFacts, hints};
use crate::analysis::holders::{self, CategoryShare, Holder};
use crate::analysis::oom::{self, OomReport};
use crate::analysis::peak::{self, Peaks};
use crate::analysis::verdict::{Churn, Facts, Verdict, judge};
use crate::program::LimitBounds;
use crate::recording::Recording;
use crate::replay::{Prediction, Recorded, Replayer, SelfMatch};
use crate::settings::AllocatorSettings;
use crate::snapshot::{BlockState, PoolId, Snapshot};
use crate::trace::Action;
use crate::track::TrackedSegment;

/// What to put into a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportOptions {
    /// How many holders to name.
    pub top: usize,
    /// The device's memory, where known: the file does not say it.
    pub device_total: Option<u64>,
    /// Whether to try other settings.
    pub advise: bool,
}

impl Default for ReportOptions {
    fn default() -> Self {
        ReportOptions { top: 10, device_total: None, advise: true }
    }
}

/// One pool and stream at the peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    /// The pool; `(0, 0)` is the default one.
    pub pool: PoolId,
    /// For requests up to 1 MiB.
    pub small: bool,
    /// Raw stream pointer.
    pub stream: u64,
    /// Held.
    pub reserved_bytes: u64,
    /// In use, pending frees included.
    pub active_bytes: u64,
    /// Free.
    pub free_bytes: u64,
    /// The largest request it could have served without new memory.
    pub largest_free_bytes: u64,
    /// Free beside something live.
    pub stranded_bytes: u64,
    /// Free and whole: could go back to the driver.
    pub releasable_bytes: u64,
    /// What that means.
    pub verdict: PoolVerdict,
}

/// How well a pool's memory was used at the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolVerdict {
    /// Hardly anything was free.
    Tight,
    /// What was free was whole segments: cache.
    Cached,
    /// The free memory was beside live blocks.
    Fragmented,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Its ordinal.
    pub device: usize,
    /// Recorded events.
    pub events: usize,
    /// Peak in the program's hands.
    pub peak_allocated_bytes: u64,
    /// Peak in use, pending frees included.
    pub peak_active_bytes: u64,
    /// Peak held from the driver.
    pub peak_reserved_bytes: u64,
    /// The event that brought what is in the program's hands to its peak; null when it was there before the first event.
    pub peak_allocated_event: Option<usize>,
    /// When that was, in microseconds since the epoch.
    pub peak_allocated_time_us: Option<i64>,
    /// The event at which the most was held from the driver.
    pub peak_event: usize,
    /// When that was, in microseconds since the epoch.
    pub peak_time_us: Option<i64>,
    /// Whether the ring lost its oldest events; null when the file cannot tell.
    pub overflowed: Option<bool>,
    /// Bytes that were live before the first event.
    pub live_before_recording_bytes: u64,
    /// Events that contradict each other or the allocator's rules.
    pub anomalies: u64,
    /// Where every byte was when the most was held.
    pub decomposition_at_peak: Decomposition,
    /// The same by pool and stream.
    pub pools_at_peak: Vec<PoolReport>,
    /// Held and in use at the end.
    pub end_reserved_bytes: u64,
    /// In the program's hands at the end.
    pub end_allocated_bytes: u64,
}

/// A setting that would have helped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The text for `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    /// The peak it would have had.
    pub peak_reserved_bytes: u64,
    /// Less than recorded.
    pub saves_bytes: u64,
    /// Whether the request that failed would have been served; null when none failed.
    pub avoids_oom: Option<bool>,
    /// In words.
    pub sentence: String,
}

/// The page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SnapshotReport {
    /// Every device with a trace or a segment.
    pub devices: Vec<DeviceReport>,
    /// The device the rest of this is about: the one with an error, else the fullest.
    pub device: usize,
    /// The settings in effect, as text; empty for the defaults.
    pub settings: String,
    /// Who held the most when the most was allocated, or when a request failed.
    pub top: Vec<Holder>,
    /// What the memory was for then.
    pub categories: Vec<CategoryShare>,
    /// The cause in one sentence.
    pub verdict: Verdict,
    /// What else is wrong, the worst first.
    pub also: Vec<Verdict>,
    /// The out-of-memory event, if there is one.
    pub oom: Option<OomReport>,
    /// Places whose blocks pile up.
    pub growth: Vec<Growth>,
    /// How far the model can be trusted here; null when no other settings were tried.
    pub self_match: Option<SelfMatch>,
    /// Settings that would have helped, best first.
    pub advice: Vec<Advice>,
    /// What to change in the program, and what that would win.
    pub hints: Vec<String>,
    /// Anything about the settings themselves.
    pub cautions: Vec<&'static str>,
}

const FIGHTING: &str = "max_split_size_mb together with expandable_segments lets reserved memory grow without bound: drop max_split_size_mb";

/// Everything about a snapshot that fits on one page.
pub fn report(snapshot: &Snapshot, options: &ReportOptions) -> SnapshotReport {
    let mut devices = Vec::new();
    let mut main: Option<((bool, u64), Recording<'_>, Peaks)> = None;
    for device in 0..snapshot.device_count().max(1) {
        let recording = Recording::new(snapshot, device);
        let peaks = peak::find(&recording);
        if snapshot.event_count(device) > 0 || peaks.totals.reserved > 0 {
            devices.push(device_report(&recording, &peaks, options));
        }
        let failed = snapshot.trace(device).any(|event| event.action == Action::Oom);
        let rank = (failed, peaks.totals.reserved);
        if main.as_ref().is_none_or(|(best, ..)| rank > *best) {
            main = Some((rank, recording, peaks));
        }
    }
    let (recording, peaks) = main.map_or_else(
        || (Recording::new(snapshot, 0), Peaks::default()),
        |(_, recording, peaks)| (recording, peaks),
    );
    let device = recording.device;
    let replayer = Replayer::new(&recording);
    let oom = oom::explain(&recording, replayer.program(), options.device_total);
    let moment = oom.as_ref().map_or(peaks.allocated_after, |oom| oom.event);
    let blocks = holders::judge(&recording, moment, &recording.state_after(moment).segments());
    let growth = growth::find(&recording);
    let count = |actions: &[Action]| {
        snapshot.trace(device).filter(|event| actions.contains(&event.action)).count() as u64
    };
    let at_peak =
        devices.iter().find(|entry| entry.device == device).map(|entry| entry.decomposition_at_peak);
    let churn = Churn::of(&recording, replayer.program());
    let (verdict, also) = judge(&Facts {
        events: snapshot.event_count(device),
        peaks: &peaks,
        oom: oom.as_ref(),
        growth: &growth,
        churn,
        taken: count(&[Action::Alloc]),
        freed: count(&[Action::FreeCompleted, Action::Free]),
        at_peak: &at_peak.unwrap_or_default(),
        settings: &recording.settings,
    });
    let mut report = SnapshotReport {
        devices,
        device,
        settings: recording.settings.to_string(),
        top: holders::by_stack(&recording, &blocks, options.top),
        categories: holders::by_category(&blocks),
        verdict,
        also,
        oom,
        growth,
        self_match: None,
        advice: Vec::new(),
        hints: Vec::new(),
        cautions: Vec::new(),
    };
    if recording.settings.expandable_segments && recording.settings.max_split_size.is_some() {
        report.cautions.push(FIGHTING);
    }
    if options.advise && snapshot.has_requests(device) {
        advise(&mut report, &recording, &replayer);
    }
    report.hints = hints(&HintFacts {
        verdicts: &std::iter::once(&report.verdict).chain(&report.also).collect::<Vec<_>>(),
        oom: report.oom.as_ref(),
        categories: &report.categories,
        growth: &report.growth,
        churn,
        splits_are_limited: recording.settings.max_split_size.is_some(),
        peak_reserved: peaks.totals.reserved,
        peak_without_churn: report
            .self_match
            .filter(|matched| churn.calls > 0 && matched.is_sound())
            .map(|_| replayer.without_empty_cache().predict(&recording.settings, None).peak_reserved_bytes),
        seconds: seconds(snapshot, device),
    });
    report
}

impl SnapshotReport {
    /// What to say of the settings when a request failed and none of those replayed would have served it.
    pub fn no_setting_helps(&self) -> Option<&'static str> {
        let was_tried = self.self_match.is_some_and(|matched| matched.is_sound());
        (was_tried && self.oom.is_some() && self.advice.is_empty())
            .then_some("no allocator setting: none of those replayed would have served the request")
    }
}

/// How long a device's trace lasted.
fn seconds(snapshot: &Snapshot, device: usize) -> Option<f64> {
    let last = snapshot.event_count(device).checked_sub(1)?;
    let time = |index| snapshot.event(device, index).and_then(|event| event.time_us);
    Some(time(last)?.saturating_sub(time(0)?) as f64 / 1e6)
}

fn device_report(recording: &Recording<'_>, peaks: &Peaks, options: &ReportOptions) -> DeviceReport {
    let tracker = recording.state_after(peaks.reserved_after);
    let segments = tracker.segments();
    let last = peaks.reserved_after.saturating_sub(1);
    let allocated = peaks.allocated_after.checked_sub(1);
    let time = |event| recording.snapshot.event(recording.device, event).and_then(|event| event.time_us);
    let mut decomposition = decompose(&segments, &recording.settings, None);
    decomposition.device_total_bytes = options.device_total;
    DeviceReport {
        device: recording.device,
        events: recording.snapshot.event_count(recording.device),
        peak_allocated_bytes: peaks.totals.allocated,
        peak_active_bytes: peaks.totals.active,
        peak_reserved_bytes: peaks.totals.reserved,
        peak_allocated_event: allocated,
        peak_allocated_time_us: allocated.and_then(time),
        peak_event: last,
        peak_time_us: time(last),
        overflowed: recording.overflowed(),
        live_before_recording_bytes: recording.live_at_start(),
        anomalies: recording.anomalies(),
        decomposition_at_peak: decomposition,
        pools_at_peak: pools(&segments, &recording.settings),
        end_reserved_bytes: peaks.end.reserved,
        end_allocated_bytes: peaks.end.allocated,
    }
}

fn pools(segments: &[TrackedSegment], settings: &AllocatorSettings) -> Vec<PoolReport> {
    let mut pools: Vec<PoolReport> = Vec::new();
    for segment in segments {
        let (pool, small, stream) = (segment.pool, segment.small, segment.stream);
        let known =
            pools.iter().position(|entry| (entry.pool, entry.small, entry.stream) == (pool, small, stream));
        let index = known.unwrap_or_else(|| {
            let empty = PoolReport {
                pool,
                small,
                stream,
                reserved_bytes: 0,
                active_bytes: 0,
                free_bytes: 0,
                largest_free_bytes: 0,
                stranded_bytes: 0,
                releasable_bytes: 0,
                verdict: PoolVerdict::Tight,
            };
            pools.push(empty);
            pools.len() - 1
        });
        let Some(entry) = pools.get_mut(index) else { continue };
        for block in &segment.blocks {
            entry.reserved_bytes += block.size;
            if block.state == BlockState::Inactive {
                entry.free_bytes += block.size;
                entry.largest_free_bytes = entry.largest_free_bytes.max(block.size);
                let whole = releasable(segment, block.addr, block.size, settings);
                entry.releasable_bytes += whole;
                entry.stranded_bytes += block.size - whole;
            } else {
                entry.active_bytes += block.size;
            }
        }
    }
    for entry in &mut pools {
        entry.verdict = match entry.free_bytes {
            free if free <= entry.reserved_bytes / 10 => PoolVerdict::Tight,
            _ if entry.stranded_bytes > entry.releasable_bytes => PoolVerdict::Fragmented,
            _ => PoolVerdict::Cached,
        };
    }
    pools.sort_by_key(|entry| (std::cmp::Reverse(entry.reserved_bytes), entry.pool, entry.stream));
    pools
}

/// A few settings that help often; what wins less than a twentieth is not worth a change.
fn advise(report: &mut SnapshotReport, recording: &Recording<'_>, replayer: &Replayer<'_>) {
    let (matched, _) = replayer.self_check(None);
    report.self_match = Some(matched);
    if !matched.is_sound() {
        return;
    }
    let tries = [
        "expandable_segments:True",
        "roundup_power2_divisions:8",
        "max_split_size_mb:256",
        "expandable_segments:True,roundup_power2_divisions:8",
    ];
    let plain = AllocatorSettings {
        garbage_collection_threshold: recording.settings.garbage_collection_threshold,
        ..AllocatorSettings::default()
    };
    let tries: Vec<AllocatorSettings> = std::iter::once(plain.clone())
        .chain(tries.iter().filter_map(|text| plain.with(text).ok()))
        .filter(|settings| *settings != recording.settings)
        .collect();
    let failed = report.oom.is_some();
    // Only what was really held is known to fit; the error may have been a byte above it.
    let limit = failed.then_some(replayer.limit_bounds().at_least);
    let recorded = replayer.recorded().peak_reserved_bytes;
    for prediction in replayer.predict_all(&tries, limit) {
        let saves = recorded.saturating_sub(prediction.peak_reserved_bytes);
        if if failed { prediction.oom } else { saves < recorded / 20 || saves == 0 } {
            continue;
        }
        let name = if prediction.settings.is_empty() { "the default settings" } else { &prediction.settings };
        let sentence = if failed {
            format!("{name} would have served the request within the {} that were held", size(recorded))
        } else {
            format!(
                "{name} would have held {} at the peak instead of {}",
                size(prediction.peak_reserved_bytes),
                size(recorded)
            )
        };
        report.advice.push(Advice {
            settings: prediction.settings,
            peak_reserved_bytes: prediction.peak_reserved_bytes,
            saves_bytes: saves,
            avoids_oom: failed.then_some(true),
            sentence,
        });
    }
    report.advice.sort_by_key(|advice| (advice.peak_reserved_bytes, advice.settings.len()));
    // After the best, only simpler ones are of interest.
    let mut shortest = usize::MAX;
    report.advice.retain(|advice| {
        let simpler = advice.settings.len() < shortest;
        shortest = shortest.min(advice.settings.len());
        simpler
    });
}

/// A replay, for people and scripts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayReport {
    /// The device.
    pub device: usize,
    /// The recorded settings.
    pub settings: String,
    /// How many recorded addresses the model chose as well.
    pub self_match: SelfMatch,
    /// The peaks as recorded.
    pub recorded: Recorded,
    /// The limit that was assumed; null for none.
    pub limit_bytes: Option<u64>,
    /// What the recording shows about the memory there was.
    pub limit_seen: LimitBounds,
    /// What would have happened.
    pub predictions: Vec<Prediction>,
    /// The best of them as a text to paste; null when the recorded settings are as good.
    pub best: Option<String>,
    /// Why the numbers should not be believed, if so.
    pub warning: Option<String>,
    /// What every prediction takes for granted.
    pub assumptions: Vec<&'static str>,
}

/// Replays a device's requests under other settings, and under a grid of them if `search` says so.
pub fn replay_report(
    snapshot: &Snapshot,
    device: usize,
    settings: &[AllocatorSettings],
    limit: Option<u64>,
    search: bool,
) -> ReplayReport {
    let recording = Recording::new(snapshot, device);
    let replayer = Replayer::new(&recording);
    let mut report = replay_head(&recording, &replayer, limit);
    let mut predictions = replayer.predict_all(settings, report.limit_bytes);
    if search {
        predictions.extend(replayer.search(report.limit_bytes));
    }
    report.take(predictions);
    report
}

impl ReplayReport {
    /// With these predictions, and the best of them.
    pub(crate) fn take(&mut self, predictions: Vec<Prediction>) {
        let recorded = self.recorded;
        self.best = predictions
            .iter()
            .filter(|prediction| !prediction.oom && prediction.caution.is_none())
            .min_by_key(|prediction| (prediction.peak_reserved_bytes, prediction.settings.len()))
            .filter(|best| recorded.oom || best.peak_reserved_bytes < recorded.peak_reserved_bytes)
            .map(|best| best.settings.clone());
        self.predictions = predictions;
    }
}

/// A replay before anything is predicted: how far the model can be trusted, and what was recorded.
pub(crate) fn replay_head(
    recording: &Recording<'_>,
    replayer: &Replayer<'_>,
    limit: Option<u64>,
) -> ReplayReport {
    let (self_match, _) = replayer.self_check(None);
    let recorded = replayer.recorded();
    let seen = replayer.limit_bounds();
    let assumed = limit.or(recorded.oom.then_some(seen.at_least));
    let warning = (!self_match.is_sound()).then(|| {
        format!(
            "the model chose only {} of {} recorded addresses: do not rely on the predictions",
            self_match.matched, self_match.total
        )
    });
    ReplayReport {
        device: recording.device,
        settings: recording.settings.to_string(),
        self_match,
        recorded,
        limit_bytes: assumed,
        limit_seen: seen,
        predictions: Vec::new(),
        best: None,
        warning,
        assumptions: vec![
            "frees stay where they were recorded, deferred ones included",
            "empty_cache() calls stay where they were recorded",
            "memory that was live before recording is laid out again in the order of its addresses",
        ],
    }
}
