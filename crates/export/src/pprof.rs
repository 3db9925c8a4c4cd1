//! pprof: gzipped protobuf with the four sample types of a heap profile, for Go's pprof, Pyroscope, Parca and others.
//!
//! Pyroscope and Parca build the type of a profile from `period_type`, and refuse one without it; a label's key must be an identifier.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use rustc_hash::FxHashMap;
use stormlog_model::stacks::StackProfile;

use crate::{About, all_in_frames, outermost_first};

/// What a heap profile shows.
#[derive(Debug, Clone, Copy)]
pub struct HeapProfile<'a> {
    /// What is held: `inuse_objects` and `inuse_space`.
    pub held: &'a StackProfile,
    /// All that was ever allocated: `alloc_objects` and `alloc_space`.
    pub allocated: &'a StackProfile,
    /// From the first record to the last.
    pub duration_ns: u64,
    /// Mean bytes between two samples; 1 where every allocation is recorded.
    pub period: u64,
    /// Whether a sample names its thread. Where labels become series (Pyroscope), a thread splits the profile.
    pub by_thread: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Texts by number; pprof wants the empty one first.
struct Strings {
    known: FxHashMap<String, i64>,
    list: Vec<String>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings { known: FxHashMap::from_iter([(String::new(), 0)]), list: vec![String::new()] }
    }
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), id);
        id
    }
}

/// Values of a sample, in the order of [`TYPES`].
type Values = [u64; 4];
const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
const ALLOCATED: usize = 0;
const IN_USE: usize = 2;

/// Tables of the profile while it grows: each text, function, location and stack once.
#[derive(Default)]
struct Tables {
    strings: Strings,
    functions: FxHashMap<(i64, i64), u64>,
    locations: FxHashMap<(u64, i64), u64>,
    samples: FxHashMap<(Vec<u64>, Option<i64>), Values>,
    profile: Profile,
}

impl Tables {
    /// The number of each frame's location.
    fn locations(&mut self, held: &StackProfile) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(held.tree.frames.len());
        for frame in &held.tree.frames {
            let key = (self.strings.id(&frame.function), self.strings.id(&frame.file));
            let next = self.functions.len() as u64 + 1;
            let function_id = *self.functions.entry(key).or_insert_with(|| {
                let function = Function { id: next, name: key.0, system_name: key.0, filename: key.1 };
                self.profile.function.push(function);
                next
            });
            let line = i64::from(frame.line);
            let next = self.locations.len() as u64 + 1;
            numbers.push(*self.locations.entry((function_id, line)).or_insert_with(|| {
                self.profile.location.push(Location { id: next, line: vec![Line { function_id, line }] });
                next
            }));
        }
        numbers
    }

    /// Adds the rows to the two values of each stack that begin at `place`.
    fn add(&mut self, held: &StackProfile, place: usize, by_thread: bool) {
        let held = &*all_in_frames(held);
        let numbers = self.locations(held);
        for row in &held.rows {
            let frames = outermost_first(held, row.node);
            let stack: Vec<u64> = frames.into_iter().rev().map(|frame| numbers[frame as usize]).collect();
            let name = held.threads.get(row.thread as usize).map_or("", String::as_str);
            let thread = by_thread.then(|| self.strings.id(name));
            let values = self.samples.entry((stack, thread)).or_default();
            values[place] = values[place].saturating_add(row.count);
            values[place + 1] = values[place + 1].saturating_add(row.bytes);
        }
    }
}

/// The gzipped profile.
#[must_use]
pub fn pprof(heap: &HeapProfile<'_>, about: &About<'_>) -> Vec<u8> {
    let mut tables = Tables::default();
    tables.add(heap.held, IN_USE, heap.by_thread);
    tables.add(heap.allocated, ALLOCATED, heap.by_thread);
    let Tables { mut strings, samples, mut profile, .. } = tables;
    let mut kind = |(name, unit): (&str, &str)| ValueType { kind: strings.id(name), unit: strings.id(unit) };
    profile.sample_type = TYPES.map(&mut kind).to_vec();
    profile.period_type = Some(kind(("space", "bytes")));
    profile.default_sample_type = strings.id("inuse_space");
    profile.period = signed(heap.period.max(1));
    profile.time_nanos = signed(about.start_ms).saturating_mul(1_000_000);
    profile.duration_nanos = signed(heap.duration_ns);
    let thread = strings.id("thread");
    profile.sample = samples
        .into_iter()
        .map(|((location_id, name), values)| Sample {
            location_id,
            value: values.map(signed).to_vec(),
            label: name.map(|text| Label { key: thread, text }).into_iter().collect(),
        })
        .collect();
    // The same heap gives the same bytes.
    profile.sample.sort_unstable_by(|a, b| (&a.location_id, &a.value).cmp(&(&b.location_id, &b.value)));
    profile.string_table = strings.list;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    // Writing into memory cannot fail.
    let _ = packed.write_all(&profile.encode_to_vec());
    packed.finish().unwrap_or_default()
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn read(bytes: &[u8]) -> Profile {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
        Profile::decode(&plain[..]).unwrap()
    }

    fn written(by_thread: bool) -> Profile {
        let held = crate::testing::held();
        let mut allocated = held.clone();
        allocated.rows.iter_mut().for_each(|row| row.bytes *= 10);
        let heap = HeapProfile { held: &held, allocated: &allocated, duration_ns: 7, period: 512, by_thread };
        read(&pprof(&heap, &About { title: "t", start_ms: 5, pid: 1 }))
    }

    #[test]
    fn reads_back_as_the_message_it_is() {
        let profile = written(true);
        let sum = |place: usize| profile.sample.iter().map(|sample| sample.value[place]).sum::<i64>();
        assert_eq!([0, 1, 2, 3].map(sum), [6, 450, 6, 45]);
        let deepest = profile.sample.iter().max_by_key(|sample| sample.location_id.len()).unwrap();
        assert_eq!(deepest.location_id, [3, 2, 1]);
        assert_eq!(profile.string_table[0], "");
        assert_eq!((profile.time_nanos, profile.duration_nanos, profile.period), (5_000_000, 7, 512));
    }

    #[test]
    fn types_are_those_of_a_heap_profile_of_go() {
        let profile = written(true);
        let text = |id: i64| profile.string_table[id as usize].as_str();
        let words = |kind: &ValueType| format!("{}:{}", text(kind.kind), text(kind.unit));
        let types: Vec<String> = profile.sample_type.iter().map(words).collect();
        let expected =
            ["alloc_objects:count", "alloc_space:bytes", "inuse_objects:count", "inuse_space:bytes"];
        assert_eq!(types, expected);
        assert_eq!(profile.period_type.as_ref().map(words).as_deref(), Some("space:bytes"));
        assert_eq!(text(profile.default_sample_type), "inuse_space");
    }

    #[test]
    fn every_reference_is_to_something_that_is_there() {
        let profile = written(false);
        assert!(profile.sample.iter().all(|sample| sample.label.is_empty()), "no thread was asked for");
        let locations: Vec<u64> = profile.location.iter().map(|location| location.id).collect();
        let functions: Vec<u64> = profile.function.iter().map(|function| function.id).collect();
        assert!(profile.sample.iter().flat_map(|one| &one.location_id).all(|id| locations.contains(id)));
        let lines = profile.location.iter().flat_map(|location| &location.line);
        assert!(lines.into_iter().all(|line| functions.contains(&line.function_id)));
    }
}
