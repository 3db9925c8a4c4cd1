//! pprof: gzipped protobuf with `inuse_space` and `inuse_objects`, for Go's pprof, Pyroscope, Parca and others.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use rustc_hash::FxHashMap;
use stormlog_model::stacks::Holdings;

use crate::{About, all_in_frames, outermost_first};

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

/// The gzipped profile.
#[must_use]
pub fn pprof(held: &Holdings, about: &About<'_>) -> Vec<u8> {
    let held = &*all_in_frames(held);
    let mut strings =
        Strings { known: FxHashMap::from_iter([(String::new(), 0)]), list: vec![String::new()] };
    let (objects, count) = (strings.id("inuse_objects"), strings.id("count"));
    let (space, bytes) = (strings.id("inuse_space"), strings.id("bytes"));
    let thread = strings.id("thread");
    let mut functions: FxHashMap<(i64, i64), u64> = FxHashMap::default();
    let mut profile = Profile {
        sample_type: vec![ValueType { kind: objects, unit: count }, ValueType { kind: space, unit: bytes }],
        time_nanos: i64::try_from(about.start_ms).unwrap_or(0).saturating_mul(1_000_000),
        default_sample_type: space,
        ..Profile::default()
    };
    for (id, frame) in held.tree.frames.iter().enumerate() {
        let key = (strings.id(&frame.function), strings.id(&frame.file));
        let next = functions.len() as u64 + 1;
        let function_id = *functions.entry(key).or_insert_with(|| {
            profile.function.push(Function { id: next, name: key.0, system_name: key.0, filename: key.1 });
            next
        });
        let line = vec![Line { function_id, line: i64::from(frame.line) }];
        profile.location.push(Location { id: id as u64 + 1, line });
    }
    for row in &held.rows {
        let mut location_id: Vec<u64> =
            outermost_first(held, row.node).into_iter().map(|frame| u64::from(frame) + 1).collect();
        location_id.reverse();
        let name = held.threads.get(row.thread as usize).map_or("", String::as_str);
        let label = vec![Label { key: thread, text: strings.id(name) }];
        let value = [row.count, row.bytes].map(|value| i64::try_from(value).unwrap_or(i64::MAX)).to_vec();
        profile.sample.push(Sample { location_id, value, label });
    }
    profile.string_table = strings.list;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    // Writing into memory cannot fail.
    let _ = packed.write_all(&profile.encode_to_vec());
    packed.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn reads_back_as_the_message_it_is() {
        let bytes = pprof(&crate::testing::held(), &About { title: "t", start_ms: 5, pid: 1 });
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        let profile = Profile::decode(&plain[..]).unwrap();
        assert_eq!(profile.sample.iter().map(|sample| sample.value[1]).sum::<i64>(), 45);
        assert_eq!(profile.sample[2].location_id, [3, 2, 1]);
        assert_eq!(profile.string_table[0], "");
        assert_eq!(profile.time_nanos, 5_000_000);
    }
}
