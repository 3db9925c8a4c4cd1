//! Logs of long runs thin with age: every event of the last hour, then of the samples of each minute the lowest and the highest, then of
//! longer spans. What is not a sample (starts, ends, warnings) stays.
//!
//! A thinned sample is an ordinary event with its own time and values. Two fields of its metadata say what it stands for:
//! `thinned_samples`, the samples of its span that the highest one counts (0 in the lowest), and `thinned_mean_bytes`, their mean.
//! Thinning what is thinned already is the same as thinning it once.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stormlog_model::{Counter, Event, Metadata};

/// Events younger than this are kept whole.
pub(super) const WHOLE_NS: u64 = 3600 * SECOND;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;
/// The span that one pair of samples stands for, by the age it has at most.
const SPANS: [(u64, u64); 3] = [(DAY, 60 * SECOND), (30 * DAY, 600 * SECOND), (u64::MAX, 3600 * SECOND)];
const SAMPLES: &str = "thinned_samples";
const MEAN: &str = "thinned_mean_bytes";

/// The samples of one device in one span.
struct Span {
    lowest: Event,
    highest: Event,
    samples: u64,
    sum: u128,
}

/// Thins events that are in order, as of `now_ns`; `factor` makes every span that much longer.
pub(super) fn thin(events: Vec<Event>, now_ns: u64, factor: u64) -> Vec<Event> {
    let mut kept = Vec::new();
    let mut open: FxHashMap<(i64, Arc<str>), (u64, Span)> = FxHashMap::default();
    for event in events {
        let Some(bytes) = bytes_of(&event).filter(|_| event.head.event_type == "sample") else {
            kept.push(event);
            continue;
        };
        let age = now_ns.saturating_sub(event.timestamp_ns);
        let length = SPANS.iter().find(|(most, _)| age <= *most).map_or(DAY, |(_, length)| *length);
        let number = event.timestamp_ns / length.saturating_mul(factor).max(1);
        let of = (event.head.device_id, Arc::from(event.head.collector.as_str()));
        match open.get_mut(&of) {
            Some((known, span)) if *known == number => span.add(event, bytes),
            _ => {
                let begun = Span::begin(event, bytes);
                kept.extend(open.insert(of, (number, begun)).into_iter().flat_map(|(_, span)| span.close()));
            }
        }
    }
    kept.extend(open.into_values().flat_map(|(_, span)| span.close()));
    kept.sort_by_key(|event| event.timestamp_ns);
    kept
}

fn bytes_of(event: &Event) -> Option<u64> {
    event.counter(Counter::Used).or_else(|| event.counter(Counter::Allocated))
}

/// How many samples an event stands for, and their sum.
fn weight(event: &Event, bytes: u64) -> (u64, u128) {
    let number = |key: &str| event.metadata.map.get(key).and_then(serde_json::Value::as_u64);
    let samples = number(SAMPLES).unwrap_or(1);
    (samples, u128::from(samples) * u128::from(number(MEAN).unwrap_or(bytes)))
}

impl Span {
    fn begin(event: Event, bytes: u64) -> Self {
        let (samples, sum) = weight(&event, bytes);
        Span { lowest: event.clone(), highest: event, samples, sum }
    }

    fn add(&mut self, event: Event, bytes: u64) {
        let (samples, sum) = weight(&event, bytes);
        self.samples += samples;
        self.sum += sum;
        if Some(bytes) < bytes_of(&self.lowest) {
            self.lowest = event.clone();
        }
        if Some(bytes) > bytes_of(&self.highest) {
            self.highest = event;
        }
    }

    fn close(self) -> Vec<Event> {
        let Span { lowest, highest, samples, sum } = self;
        if samples == 1 {
            return vec![highest];
        }
        let mean = u64::try_from(sum / u128::from(samples.max(1))).unwrap_or(u64::MAX);
        let is_one = lowest.timestamp_ns == highest.timestamp_ns;
        let lowest = (!is_one).then(|| marked(lowest, 0, None));
        let highest = marked(highest, samples, Some(mean));
        lowest.into_iter().chain([highest]).collect()
    }
}

fn marked(event: Event, samples: u64, mean: Option<u64>) -> Event {
    let mut metadata: Metadata = (*event.metadata).clone();
    metadata.map.insert(SAMPLES.to_owned(), samples.into());
    match mean {
        Some(mean) => metadata.map.insert(MEAN.to_owned(), mean.into()),
        None => metadata.map.shift_remove(MEAN),
    };
    Event { metadata: Arc::new(metadata), ..event }
}
