//! Perfetto's TrackEvent protobuf: a track for each counter, one for phases, steps and alerts, below the track of their process.
//!
//! Times are nanoseconds since 1970, in the default clock of a trace, so that traces of several machines have one axis.

use prost::Message;

use crate::timeline::{Timeline, TimelineProcess};

/// One writer, one sequence of packets.
const SEQUENCE: u32 = 1;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
const UNIT_BYTES: i32 = 3;
const ALERTS: &str = "alerts";

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    sequence: u32,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterKind>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, tag = "6")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct CounterKind {
    #[prost(int32, tag = "3")]
    unit: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(message, repeated, tag = "4")]
    annotation: Vec<Annotation>,
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track: u64,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, tag = "6")]
    text: String,
    #[prost(string, tag = "10")]
    name: String,
}

/// Tracks with their numbers, and events by time.
#[derive(Default)]
struct Writer {
    tracks: Vec<Packet>,
    events: Vec<Packet>,
}

impl Writer {
    fn track(&mut self, track: Track) -> u64 {
        let uuid = self.tracks.len() as u64 + 1;
        let track = Some(Track { uuid, ..track });
        self.tracks.push(Packet { sequence: SEQUENCE, track, ..Packet::default() });
        uuid
    }

    fn event(&mut self, at_ns: u64, event: Event) {
        let event = Some(event);
        self.events.push(Packet { timestamp: Some(at_ns), sequence: SEQUENCE, event, ..Packet::default() });
    }

    fn process(&mut self, process: &TimelineProcess) {
        let pid = i32::try_from(process.pid).ok();
        let described = Process { pid, name: process.name.clone() };
        let parent = Some(self.track(Track { process: Some(described), ..Track::default() }));
        for counter in &process.counters {
            let kind = Some(CounterKind { unit: UNIT_BYTES });
            let name = Some(counter.name.clone());
            let track = self.track(Track { name, parent, counter: kind, ..Track::default() });
            for (at, bytes) in &counter.points {
                let value = Some(i64::try_from(*bytes).unwrap_or(i64::MAX));
                self.event(*at, Event { kind: COUNTER, track, value, ..Event::default() });
            }
        }
        let mut slices: Vec<_> = process.slices.iter().collect();
        // Stable: an outer slice stays before those in it that begin at the same moment.
        slices.sort_by_key(|slice| &slice.track);
        let mut last = None;
        for slice in slices {
            let track = match last {
                Some((name, track)) if name == &slice.track => track,
                _ => self.track(Track { name: Some(slice.track.clone()), parent, ..Track::default() }),
            };
            last = Some((&slice.track, track));
            let name = Some(slice.name.clone());
            self.event(slice.from_ns, Event { kind: SLICE_BEGIN, track, name, ..Event::default() });
            self.event(slice.to_ns.max(slice.from_ns), Event { kind: SLICE_END, track, ..Event::default() });
        }
        if process.instants.is_empty() {
            return;
        }
        let track = self.track(Track { name: Some(ALERTS.to_owned()), parent, ..Track::default() });
        for instant in &process.instants {
            let annotation = vec![Annotation { name: "text".to_owned(), text: instant.text.clone() }];
            let name = Some(instant.name.clone());
            self.event(instant.at_ns, Event { kind: INSTANT, track, name, annotation, ..Event::default() });
        }
    }
}

/// The trace.
pub(crate) fn perfetto(timeline: &Timeline) -> Vec<u8> {
    let mut writer = Writer::default();
    timeline.processes.iter().for_each(|process| writer.process(process));
    // Stable: where one slice ends and the next begins at a moment, the end was added first. Ends have no name, so the order among them is free.
    writer.events.sort_by_key(|packet| packet.timestamp);
    let mut packet = writer.tracks;
    packet.append(&mut writer.events);
    Trace { packet }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_on_a_track_and_in_order_of_time() {
        let trace = Trace::decode(&perfetto(&crate::testing::timeline())[..]).unwrap();
        let tracks: Vec<u64> =
            trace.packet.iter().filter_map(|one| one.track.as_ref()).map(|one| one.uuid).collect();
        let events: Vec<(u64, &Event)> =
            trace.packet.iter().filter_map(|one| Some((one.timestamp?, one.event.as_ref()?))).collect();
        assert_eq!(tracks.len(), 5, "the process, one counter, phases, steps, alerts");
        assert!(events.iter().all(|(_, event)| tracks.contains(&event.track)));
        assert!(events.is_sorted_by_key(|(at, _)| at));
        let kinds = |kind: i32| events.iter().filter(|(_, event)| event.kind == kind).count();
        assert_eq!([COUNTER, SLICE_BEGIN, SLICE_END, INSTANT].map(kinds), [2, 3, 3, 1]);
        let values: Vec<i64> = events.iter().filter_map(|(_, event)| event.value).collect();
        assert_eq!(values, [7, 9]);
        // Two steps meet: the first ends before the second begins.
        let at_meeting: Vec<i32> =
            events.iter().filter(|(at, _)| *at == 3_000).map(|(_, event)| event.kind).collect();
        assert_eq!(at_meeting, [SLICE_END, SLICE_BEGIN]);
    }

    #[test]
    fn outer_slice_begins_before_an_inner_one_of_the_same_moment() {
        let slice = |name: &str, from_ns, to_ns| crate::timeline::Slice {
            track: "phases".to_owned(),
            from_ns,
            to_ns,
            name: name.to_owned(),
        };
        let slices = vec![slice("train", 1, 9), slice("epoch", 1, 5), slice("step", 1, 5)];
        let timeline = Timeline { processes: vec![TimelineProcess { slices, ..TimelineProcess::default() }] };
        let trace = Trace::decode(&perfetto(&timeline)[..]).unwrap();
        let names: Vec<&str> =
            trace.packet.iter().filter_map(|one| one.event.as_ref()?.name.as_deref()).collect();
        assert_eq!(names, ["train", "epoch", "step"]);
    }
}
